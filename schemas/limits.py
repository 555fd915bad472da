"""Every limit on what comes in from outside, in one place, with the reason for the number.

Three groups: bounds of a record, bounds of ids and locations, bounds of one stream. A record that
exceeds the first two becomes a dead letter. A stream that exceeds the third is rejected by the core
with a decision, because its author has to see the answer.
"""

import re

# Bounds of a record. Its value and headers together. The largest legitimate input, a
# StreamCreated that adopts an existing placement, stays below it; sixteen of them fit one default
# Kafka batch.
RECORD_BYTES_MAX = 64 * 1024
# Of a report of loads: some 2,500 shards with two resources, and four to a default Kafka batch.
LOAD_RECORD_BYTES_MAX = 256 * 1024
# Levels of nested objects and arrays, the record itself being the first. The deepest message,
# a policy with rules over domains, uses five.
DEPTH_MAX = 8
# Names in one object; four times the widest message.
FIELDS_MAX = 64
# Bytes of one string in UTF-8, names included; a placement_policies string of the source
# systems is below 200.
STRING_BYTES_MAX = 1024
# Integers are kept in 64-bit columns; larger ones would silently become floats in JSON readers.
INTEGER_MAX = 2**63 - 1
INTEGER_MIN = -(2**63)

# Bounds of ids and locations. Ids and stream names are used as record keys, header values and label
# values: characters that need no quoting in any of them. 249 holds every name of a Kafka topic
# (clients, internals/Topic.java).
ID_LENGTH_MAX = 249
ID_PATTERN = r"^[A-Za-z0-9_.-]{1,249}$"
ID = re.compile(ID_PATTERN)
# Kudu's rule for location labels, eight levels from region to chassis. Other characters, as in
# Kafka's racks, stand as the bytes of their UTF-8 with a percent sign (RFC 3986, capital digits),
# each byte counting as one character.
LOCATION_LEVELS_MAX = 8
LOCATION_PATTERN = r"^(/([A-Za-z0-9_.-]|%[0-9A-F]{2}){1,128}){1,8}$"
# `.` and `..` as a component would make two spellings of one path.
LOCATION_FORBIDDEN = r"/\.{1,2}(/|$)"
# Tag keys as in Kubernetes labels (`topology.kubernetes.io/zone`); `=` is kept free because a tag's
# domain is written `key=value`.
TAG_KEY_PATTERN = r"^[A-Za-z0-9_./-]{1,128}$"
# Printable ASCII: no control characters that could forge log lines, no look-alike letters.
TAG_VALUE_PATTERN = r"^[ -~]{1,128}$"
# Resources are named as metrics are, units last. The other fields of a reported shard stand beside
# the names, so that these are no names.
RESOURCE_PATTERN = r"^[a-z][a-z0-9_]{0,62}$"
RESOURCE = re.compile(RESOURCE_PATTERN)
RESOURCE_NAMES_RESERVED = frozenset({"stream", "shard", "uid"})
# A DNS name is at most 253 characters; the rest leaves room for a port.
HOST_PATTERN = r"^[!-~]{1,260}$"
# A person's or program's name as an authority gives it: a login, an address, a certificate's name.
PRINCIPAL_PATTERN = r"^[ -~]{1,128}$"

# Weights are shares of load. Six orders of magnitude either side keep every sum of ten million
# replicas exact enough in float64, and no share becomes zero or infinite.
WEIGHT_MIN = 1e-6
WEIGHT_MAX = 1e6
# Replicas one node may say it holds; far above any real node, inside a 32-bit column.
CAPACITY_MAX = 10**9
# Of one resource of a shard or node: sums over a fleet stay inside 64 bits of a float's range, and
# whoever adds two of them does not overflow.
AMOUNT_MAX = 2**62
# A minute: nothing that answers later is of use to a quorum.
RTT_MS_MAX = 60_000.0
# Shape of a count in a stream's request: any 32-bit number is understood, then judged
# by the bounds of one stream.
COUNT_MAX = 2**31 - 1
COUNT_MIN = -(2**31)

# Bounds of one stream, enforced by the core as rejected decisions: no fan-out from one record.
REPLICATION_FACTOR_MAX = 64
SHARDS_MAX = 10_000
REPLICAS_MAX = 100_000

# Kafka's longest topic name (clients, internals/Topic.java).
TOPIC_NAME_LENGTH_MAX = 249
# `.` and `_` collide in Kafka's metric names, so prefixes use dots and hyphens only.
TOPIC_PREFIX_PATTERN = r"^([A-Za-z0-9-]+\.)*$"

# A refusal's sentence travels in a record header and in logs; long input is cut, never echoed.
DETAIL_LENGTH_MAX = 300
ECHO_LENGTH_MAX = 60
