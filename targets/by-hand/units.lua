-- Switch and allocation of Lua, by hand: nanoseconds on standard output.
local hrtime = require("luv").hrtime
local what, _, count = ...
count = tonumber(count)
local start = hrtime()
if what == "switch" then
  local unit = coroutine.create(function()
    while true do
      coroutine.yield()
    end
  end)
  coroutine.resume(unit)
  start = hrtime()
  for _ = 1, count do
    coroutine.resume(unit)
  end
else
  local all = {}
  for i = 1, count do
    all[i] = coroutine.create(function()
      coroutine.yield()
      coroutine.yield()
    end)
  end
  for _ = 1, 3 do
    for _, unit in ipairs(all) do
      coroutine.resume(unit)
    end
  end
end
print((hrtime() - start) / count)
