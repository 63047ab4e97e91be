"""The local backend of `tidemark up`: pods are processes of this machine, Services are ports.

store         objects, versions, watches, garbage collection
deployments   Deployments become Pods
kubelet       Pods become processes: pod_runner, probes, translate, process, launch
proxy         Services become ports
backend       all of it together, behind the cluster interface
files         what lies in the state folder
control       the socket that `tidemark apply` and `tidemark status` use
"""
