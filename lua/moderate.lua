-- Move the moderation position, look at every registered board.
--
-- The events themselves come with moderation; this is the call that the owner of the moderation partition makes at
-- least once a second: it notices a primary that fell back, and lost keys of boards that nobody writes.
--
-- KEYS
--   1  log     as in apply_runs
--   2  boards  as in apply_runs
-- ARGV
--   1  definitions  as in apply_runs
--   2  topic        id of the moderation topic
--   3  from         offset of the first event
--   4  to           offset after the last
--   5  end          end of the topic as the sender saw it
--   6  time         record time of the last event, epoch ms; 0: none
--   7  caught_up    when `to` was the end, epoch ms; 0: it was not
--   8  now          the sender's clock, epoch ms: only for keys whose expiry has passed
-- Reply: {status, position, verdicts, then references of the boards that were found lost by this call}
--   status 0 applied, 1 refused, 2 other definitions, 3 other topic; position as there

local SKEW = 60000 -- as in apply_runs

local log_key, boards_key = KEYS[1], KEYS[2]
local from, to, log_end, now = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[8])
local prefix = string.sub(log_key, 1, #log_key - #'log')

local verdicts = tonumber(redis.call('HGET', log_key, 'verdicts') or '0')
local known = redis.call('HGET', boards_key, '@') or ''
if known ~= ARGV[1] then return {2, known, verdicts} end
local topic = redis.call('HGET', log_key, 'moderation-topic')
if topic and topic ~= ARGV[2] then return {3, topic, verdicts} end

local entry = redis.call('HGET', log_key, 'moderation') or '- 0 0 0'
local stored, time, caught_up, target = string.match(entry, '^(%S+) (%d+) (%d+) (%d+)$')
local position = tonumber(stored)
time, caught_up, target = tonumber(time), tonumber(caught_up), tonumber(target)

local function store(new_position)
  redis.call('HSET', log_key, 'moderation', string.format('%s %.0f %.0f %.0f',
    new_position and string.format('%.0f', new_position) or '-', time, caught_up, target))
end

if not position then target = math.max(target, log_end, from) end
if (position or 0) < from then
  target = math.max(target, from)
  store(position)
  return {1, position or -1, verdicts}
end

local reply = {0, math.max(position or 0, to), verdicts}
time, caught_up = math.max(time, tonumber(ARGV[6])), math.max(caught_up, tonumber(ARGV[7]))
store(reply[2])
if not topic then redis.call('HSET', log_key, 'moderation-topic', ARGV[2]) end

local flat = redis.call('HGETALL', boards_key)
for i = 1, #flat, 2 do
  local reference = flat[i]
  if string.sub(reference, 1, 1) ~= '@' then
    local epoch, start, expires, status, build, loaded = string.match(flat[i + 1], '^(%d+) (%d+) (%d+) (%S+) (%S+) (%d+)$')
    local kind = redis.call('TYPE', prefix .. reference).ok
    if expires ~= '0' and tonumber(expires) <= now + SKEW and (kind == 'none' or tonumber(expires) <= now) then
      if kind == 'none' then redis.call('HDEL', boards_key, reference) end
    elseif status ~= 'needs-rebuild' and kind ~= 'zset' and (kind ~= 'none' or status == 'live') then
      redis.call('HSET', boards_key, reference, table.concat({epoch, start, expires, 'needs-rebuild', build, loaded}, ' '))
      reply[#reply + 1] = reference
    end
  end
end
return reply
