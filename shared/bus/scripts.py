"""The Lua scripts that write the table; each checks its conditions and writes atomically.

They compare the ``run_id`` of the server with the one in the head. A failover or a restart may have
lost marks of used tokens, which the table does not show. An epoch is therefore never continued on
another Redis process than the one on which it began.
"""

from __future__ import annotations

from typing import Final

_SERVER: Final = """
local function server() return redis.call('INFO', 'server'):match('run_id:(%w+)') or '' end
"""

# KEYS: routes, revoked, head, log.
# ARGV: epoch, seq, term, channel, verb, field, value, event, length of the log, (S)PUBLISH;
# and of a publisher that signs: the resulting signed head, and the score below which revocations
# are dropped (otherwise a heartbeat drops those that have expired by its own time).
# Nothing is written unless Redis holds exactly what the publisher last saw. A head that is one
# ahead by the same event means that the response to this call was lost: it is not repeated.
# The log is written first, since writes before an error stay: a log of another epoch, from a backup
# of single keys, may be ahead and refuse the entry.
PUBLISH: Final = (
    _SERVER
    + """
local head = redis.call('HMGET', KEYS[3], 'epoch', 'seq', 'term', 'routes', 'revoked', 'server',
  'last')
for field = 1, 5 do if not head[field] then return 'missing' end end
local at, seq, term = tonumber(head[2]), tonumber(ARGV[2]), tonumber(ARGV[3])
if tonumber(head[3]) > term then return 'term' end
if head[1] ~= ARGV[1] then return 'epoch' end
if head[6] and head[6] ~= server() then return 'server' end
if redis.call('HLEN', KEYS[1]) ~= tonumber(head[4])
  or redis.call('ZCARD', KEYS[2]) ~= tonumber(head[5]) then return 'counts' end
local verb, signed, floor = ARGV[5], ARGV[11], ARGV[12]
local function drop(below)
  local dropped = redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(' .. below)
  if dropped > 0 then redis.call('HINCRBY', KEYS[3], 'revoked', -dropped) end
end
if verb == 'beat' then
  if at ~= seq then return 'seq' end
  drop(floor or ARGV[7])
else
  local this = redis.sha1hex(ARGV[8])
  if at == seq + 1 and head[7] == this then return 'done' end
  if at ~= seq then return 'seq' end
  local logged = redis.pcall('XADD', KEYS[4], 'MAXLEN', '~', ARGV[9], (seq + 1) .. '-0', 'event',
    ARGV[8])
  if logged.err then return 'log' end
  if floor then drop(floor) end
  if verb == 'upsert' then redis.call('HSET', KEYS[1], ARGV[6], ARGV[7])
  elseif verb == 'remove' then redis.call('HDEL', KEYS[1], ARGV[6])
  else redis.call('ZADD', KEYS[2], 'GT', ARGV[7], ARGV[6]) end
  redis.call('HSET', KEYS[3], 'seq', seq + 1, 'term', term, 'last', this,
    'routes', redis.call('HLEN', KEYS[1]), 'revoked', redis.call('ZCARD', KEYS[2]))
end
if signed then redis.call('HSET', KEYS[3], 'signed', signed) end
redis.call(ARGV[10], ARGV[4], ARGV[8])
return 'done'
"""
)

# KEYS: routes, revoked, head, log, and the pending routes and revocations.
# ARGV: term, channel, event, PUBLISH or SPUBLISH, routes, revoked, then the fields of the new head.
# If "server" is among them, as in a signed head, it must be the run_id of this process.
SWAP: Final = (
    _SERVER
    + """
local term = redis.call('HGET', KEYS[3], 'term')
if term and tonumber(term) > tonumber(ARGV[1]) then return 'term' end
if redis.call('HLEN', KEYS[5]) ~= tonumber(ARGV[5])
  or redis.call('ZCARD', KEYS[6]) ~= tonumber(ARGV[6]) then return 'counts' end
for field = 7, #ARGV, 2 do
  if ARGV[field] == 'server' and ARGV[field + 1] ~= server() then return 'server' end
end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
for pending = 5, 6 do
  if redis.call('EXISTS', KEYS[pending]) == 1 then
    redis.call('PERSIST', KEYS[pending])
    redis.call('RENAME', KEYS[pending], KEYS[pending - 4])
  end
end
redis.call('HSET', KEYS[3], 'server', server(), unpack(ARGV, 7))
redis.call(ARGV[4], ARGV[2], ARGV[3])
return 'done'
"""
)

# KEYS: head. ARGV: term, channel, PUBLISH or SPUBLISH, and an event, whose epoch and seq are set to
# the head's. Nothing is written.
NOTICE: Final = """
local head = redis.call('HMGET', KEYS[1], 'epoch', 'seq', 'term')
for field = 1, 3 do if not head[field] then return 'missing' end end
if tonumber(head[3]) > tonumber(ARGV[1]) then return 'term' end
local event = cjson.decode(ARGV[4])
event.epoch, event.seq = head[1], tonumber(head[2])
redis.call(ARGV[3], ARGV[2], cjson.encode(event))
return 'done'
"""
