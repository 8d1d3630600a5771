-- Read how far a primary is, and its registry, in one step. Writes nothing.
--
-- KEYS
--   1  log     as in apply_runs
--   2  boards  as in apply_runs
--   3  due     hash: player -> positions
-- Reply: {log as a flat list, registry as a flat list, due players, then (reference type members) of each registered board}

local log_key, boards_key, due_key = KEYS[1], KEYS[2], KEYS[3]
local prefix = string.sub(log_key, 1, #log_key - #'log')
local registry = redis.call('HGETALL', boards_key)
local reply = {redis.call('HGETALL', log_key), registry, redis.call('HLEN', due_key)}
for i = 1, #registry, 2 do
  local reference = registry[i]
  if string.sub(reference, 1, 1) ~= '@' then
    local kind = redis.call('TYPE', prefix .. reference).ok
    reply[#reply + 1] = reference
    reply[#reply + 1] = kind
    reply[#reply + 1] = kind == 'zset' and redis.call('ZCARD', prefix .. reference) or 0
  end
end
return reply
