-- Measures coroutines by the protocol of docs/targets.md: the gated workloads, and feed. Lua 5.1 and newer.

local luv = require("luv")
local create, resume, yield = coroutine.create, coroutine.resume, coroutine.yield

local WARMUP_UNITS = 100

local orders = {}
for _, argument in ipairs(arg) do
  local key, value = argument:match("^(.-)=(.*)$")
  if key then
    orders[key] = value
  end
end

local function number(key, missing)
  return tonumber(orders[key]) or missing
end

local function say(line, ...)
  print(line:format(...))
  io.stdout:flush()
end

-- Stops, if that was ordered, until the lab has looked at this process.
local function phase(name)
  if orders.phases == "1" then
    say('{"phase":"%s"}', name)
    io.read("*l")
  end
end

local function failed(message)
  error({ message = tostring(message) })
end

-- One round: what it took to create and to run the units, and the switches they made.
local function round(units, switches, alive)
  local made = 0
  local start = luv.hrtime()
  local all = {}
  for at = 1, units do
    all[at] = create(function()
      for _ = 1, switches do
        yield(true)
      end
    end)
  end
  local function turn()
    for at = 1, units do
      -- The second value is true if the coroutine waits, and nothing if it has ended.
      local well, waits = resume(all[at])
      if waits == true then
        made = made + 1
      elseif not well then
        failed(waits)
      end
    end
  end
  turn()
  local created = luv.hrtime() - start
  alive()
  start = luv.hrtime()
  -- Each waits as often as it has switches to make; the last turn takes it to its end.
  for _ = 1, switches do
    turn()
  end
  return created, luv.hrtime() - start, made
end

local function nanoseconds(time)
  return time.sec * 1e9 + time.usec * 1e3
end

-- The kernel's counts, as keys of the sample.
local function usage()
  local used = luv.getrusage()
  return {
    voluntary = used.nvcsw,
    involuntary = used.nivcsw,
    user_ns = nanoseconds(used.utime),
    system_ns = nanoseconds(used.stime),
  }
end

local function gated()
  local units, switches, rounds = number("units", 1), number("switches", 1), number("rounds", 1)
  local warmups, warmup = number("warmup", 0), 0
  local function nothing() end
  for _ = 1, warmups do
    local created, ran = round(math.min(units, WARMUP_UNITS), switches, nothing)
    warmup = warmup + created + ran
  end
  phase("base")
  local before = usage()
  local times, made = {}, 0
  for at = 1, rounds do
    local created, ran, switched = round(units, switches, at == 1 and function() phase("alive") end or nothing)
    made = made + switched
    times[at] = ('{"create_ns":%.0f,"run_ns":%.0f}'):format(created, ran)
    if at == 1 then
      phase("done")
    end
  end
  local more = ""
  for name, value in pairs(usage()) do
    more = more .. (',"%s":%.0f'):format(name, value - before[name])
  end
  if warmups > 0 then
    more = more .. (',"warmup":{"rounds":%d,"ns":%.0f}'):format(warmups, warmup)
  end
  say(
    '{"sample":{"units":%d,"switches_asked":%d,"switches_made":%d,"rounds":[%s],"gc":{"on":true}%s}}',
    units, units * switches * rounds, made, table.concat(times, ","), more
  )
end

local Person = {}
Person.__index = Person

function Person.new(need)
  return setmetatable({ need = need, iron = 0, calcium = 0, fiber = 0 }, Person)
end

function Person:satisfied()
  return self.iron == self.need and self.calcium == self.need and self.fiber == self.need
end

function Person:bite()
  self.iron = self.iron + 1
  self.calcium = self.calcium + 1
  self.fiber = self.fiber + 1
end

function Person:eaten()
  return self.iron + self.calcium + self.fiber
end

local function feed()
  local count, nutrients, rounds = number("units", 1), number("nutrients", 1), number("rounds", 1)
  local yields = number("yields", 0) == 1
  local made, eaten, times = 0, 0, {}
  for at = 1, rounds do
    local people = {}
    for p = 1, count do
      people[p] = Person.new(nutrients)
    end
    local start = luv.hrtime()
    local hungry = {}
    for p = 1, count do
      local person = people[p]
      hungry[p] = create(function()
        while not person:satisfied() do
          person:bite()
          if yields then
            yield(true)
          end
        end
      end)
    end
    -- Those that wait are kept, in their order; the first turn starts them.
    local left = count
    while left > 0 do
      local still = 0
      for p = 1, left do
        local unit = hungry[p]
        local well, waits = resume(unit)
        if waits == true then
          still = still + 1
          hungry[still] = unit
        elseif not well then
          failed(waits)
        end
      end
      made, left = made + still, still
    end
    times[at] = ('{"create_ns":0,"run_ns":%.0f}'):format(luv.hrtime() - start)
    for p = 1, count do
      eaten = eaten + people[p]:eaten()
    end
  end
  say(
    '{"sample":{"units":%d,"switches_asked":%d,"switches_made":%d,"rounds":[%s],"gc":{"on":true},"eaten":%d}}',
    count, yields and count * nutrients * rounds or 0, made, table.concat(times, ","), eaten
  )
end

local well, problem = pcall(function()
  if orders.unit ~= "coroutine" then
    failed(("there is no unit '%s'; the unit is coroutine"):format(orders.unit or ""))
  end
  if orders.workload == "feed" then
    feed()
  else
    gated()
  end
end)
if not well then
  local message = type(problem) == "table" and problem.message or tostring(problem)
  say('{"failure":{"message":"%s"}}', (message:gsub('[%c"\\]', " ")))
  os.exit(1)
end
