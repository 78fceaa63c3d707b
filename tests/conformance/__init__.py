"""Black-box tests of an API server with Volcano, for any cluster.

The cases take ``KUBECONFIG``; without it, an embedded cluster is started once for all of them. The
responses of a real server stand in `responses`, with the version of that server.
"""
