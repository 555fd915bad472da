# Whether node $3 holds a complete replica of shard $2 of stream $1: 0 or 1, for placer conformance.
grep -qs '"complete": true' "$STORE/$3/$1.$2/state.json" || exit 1
