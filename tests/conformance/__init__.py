"""How an API server with Volcano answers: black-box cases, for any cluster.

They take ``KUBECONFIG``; without it an embedded cluster is started once for all of them. What a
real server answered stands in `answers`, with the version that was asked.
"""
