-- Put board definitions in force on this primary.
--
-- KEYS
--   1  log     as in apply_runs
--   2  boards  as in apply_runs
-- ARGV
--   1  mode     "new": only where no definitions are known yet (an applier at its start, an emptied primary)
--               "change": replace what is known (init)
--   2  digest   of all definitions
--   3… name digest max_future of each board; max_future in ms: how far a run may be ahead of its record time
-- Reply: {status, digest known before, then names of boards with windows that need a rebuild}
--   status 0 in force, 2 other definitions are known (mode "new"; nothing was written)
-- A board that is new or changed is whole only for windows that start after every record applied here so far:
-- a record of such a window was appended at most max_future before the window's start. Rules that begin after all
-- records applied here, or end after them, have judged them alike: to add or to end one so changes no window.

local log_key, boards_key = KEYS[1], KEYS[2]
local mode, digest = ARGV[1], ARGV[2]
local known = redis.call('HGET', boards_key, '@') or ''
if known ~= digest and mode == 'new' and known ~= '' then
  return {2, known}
end

local newest = -1 -- the record time up to which records were applied; -1: none was
local log = redis.call('HGETALL', log_key)
for i = 1, #log, 2 do
  local position, time = string.match(log[i + 1], '^(%d+) (%d+) %d+ %d+$')
  if position and string.sub(log[i], 1, 5) == 'runs:' and tonumber(position) > 0 then
    newest = math.max(newest, tonumber(time))
  end
end

-- What a digest ("hash:since-until-rule,…") says of records up to the newest.
local function judging(digest)
  local hash, rules = string.match(digest, '^([^:]*):?(.*)$')
  local found = {hash}
  for since, till, rule in string.gmatch(rules, '(%d+)%-(%d*)%-(%w+)') do
    if tonumber(since) <= newest then
      found[#found + 1] = since .. '-' .. ((tonumber(till) or newest + 1) <= newest and till or '') .. '-' .. rule
    end
  end
  return table.concat(found, ',')
end

local reply, whole, names, gone = {0, known}, {}, {}, {}
for i = 3, #ARGV, 3 do
  local name, max_future = ARGV[i], tonumber(ARGV[i + 2])
  names[name] = true
  local had, since = string.match(redis.call('HGET', boards_key, '@' .. name) or '', '^(%S+) (%d+)$')
  local from = tonumber(since or '0')
  if not had or judging(had) ~= judging(ARGV[i + 1]) then
    from = newest < 0 and 0 or newest + max_future
  end
  if had ~= ARGV[i + 1] or from ~= tonumber(since) then
    redis.call('HSET', boards_key, '@' .. name, string.format('%s %.0f', ARGV[i + 1], from))
    whole[name] = from
    if from > 0 then reply[#reply + 1] = name end
  end
end

local flat = redis.call('HGETALL', boards_key)
for i = 1, #flat, 2 do
  local reference = flat[i]
  local definition = string.match(reference, '^@(.+)$')
  if definition then
    if not names[definition] then gone[#gone + 1] = reference end
  elseif reference ~= '@' then
    local from = whole[string.match(reference, '^[^:]+')]
    local epoch, start, expires, status, build, loaded = string.match(flat[i + 1], '^(%d+) (%d+) (%d+) (%S+) (%S+) (%d+)$')
    if from and status ~= 'needs-rebuild' and tonumber(start) < from then
      redis.call('HSET', boards_key, reference, table.concat({epoch, start, expires, 'needs-rebuild', build, loaded}, ' '))
    end
  end
end
for i = 1, #gone do redis.call('HDEL', boards_key, gone[i]) end
redis.call('HSET', boards_key, '@', digest)
return reply
