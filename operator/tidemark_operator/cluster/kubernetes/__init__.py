"""The cluster interface against an API server.

connection   credentials, timeouts, one counted way for every request
kinds        kind -> group, version, plural
api          requests and their errors, in our exceptions
cache        what watches told, compact; every read is answered from it
activity     when each watch was last known to work
resync       what no watch told: objects that vanished while nobody was connected
optional_kinds  kinds of others (PodMonitor): are they there, and what is there of them
recorder     events: deduplicated, rate-limited, never in the way
nodes        is there a device to spare
lease        who leads
backend      all of it together, as `interface.Cluster`
"""
