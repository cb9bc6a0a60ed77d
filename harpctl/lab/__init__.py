"""The lab: hosts made of network namespaces, joined by veth links with caps, loss and MTUs."""
