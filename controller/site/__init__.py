"""The operator's decisions about jobs, read from the environment and from files.

- ``job_defaults``: the defaults of jobs, and the rules for all of them and for their pods.
- Files: ``product_list``, ``tool_list``, ``kinds``, ``owner_shares``, ``webhook_receivers``; each
  is read by ``yaml_file``, which reports every problem with its path.
- Lists in one setting: ``images`` that jobs may use, ``licences`` (licence servers).
- ``hook_limits``: how long and how often plugins' hooks are tried; ``log_place``: where logs go.
- ``setting_values``: parsers that several settings share.
"""
