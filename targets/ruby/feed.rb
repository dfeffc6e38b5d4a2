# The `feed` workload of docs/targets.md: people who need so many bites each, fed by threads or
# fibers; by fibers over a few threads; or by processes with fibers in each.

require "json"
require "fiber"

Person = Struct.new(:need, :iron, :calcium, :fiber) do
  def satisfied?
    iron == need && calcium == need && fiber == need
  end

  def bite
    self.iron += 1
    self.calcium += 1
    self.fiber += 1
  end
end

# The person that ate last: a pass after which it is still the same one made no switch.
$last = nil

def by_threads(people, yields)
  threads = people.map do |person|
    Thread.new do
      made = 0
      until person.satisfied?
        person.bite
        next unless yields

        $last = person
        Thread.pass
        made += 1 unless $last.equal?(person)
      end
      made
    end
  end
  threads.sum(&:value)
end

def by_fibers(people, yields)
  fibers = people.map do |person|
    Fiber.new do
      until person.satisfied?
        person.bite
        Fiber.yield true if yields
      end
      false
    end
  end
  made = 0
  count = fibers.size
  # In place and without blocks, so that what is fed are people and not arrays. A fiber says whether
  # it yielded or has ended: in old versions alive? tells only after one more resume.
  while count > 0
    at = left = 0
    while at < count
      fiber = fibers[at]
      if fiber.resume
        fibers[left] = fiber
        left += 1
      end
      at += 1
    end
    count = left
    made += left
  end
  made
end

def share(people, workers)
  people.group_by.with_index { |_, at| at % workers }.values
end

def over_threads(people, yields, workers, &feed)
  share(people, workers).map { |some| Thread.new { feed.call(some, yields) } }.sum(&:value)
end

# People who ate in another process are told of by it: their counts come back.
def over_processes(people, yields, workers, &feed)
  running = share(people, workers).map do |some|
    reader, writer = IO.pipe(binmode: true)
    pid = fork do
      reader.close
      made = feed.call(some, yields)
      writer.write(Marshal.dump([made, some.map(&:to_a)]))
      writer.close
      exit!(0)
    end
    writer.close
    [some, reader, pid]
  end
  running.sum do |some, reader, pid|
    made, eaten = Marshal.load(reader.read)
    Process.wait(pid)
    some.zip(eaten) { |person, counts| _, person.iron, person.calcium, person.fiber = counts }
    made
  end
end

def now
  Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
end

def sample(orders)
  count, nutrients = Integer(orders["units"]), Integer(orders["nutrients"])
  yields, how = orders["yields"] == "1", orders["how"]
  workers = Integer(orders.fetch("workers", 2)).clamp(1, count)
  feed = method(orders["unit"] == "thread" ? :by_threads : :by_fibers)
  made = eaten = 0
  rounds = Array.new(Integer(orders.fetch("rounds", 1))) do
    people = Array.new(count) { Person.new(nutrients, 0, 0, 0) }
    start = now
    made += case how
            when "hybrid" then over_threads(people, yields, workers, &feed)
            when "processes" then over_processes(people, yields, workers, &feed)
            else feed.call(people, yields)
            end
    time = now - start
    raise "a person is still hungry" unless people.all?(&:satisfied?)

    eaten += people.sum { |person| person.iron + person.calcium + person.fiber }
    { create_ns: 0, run_ns: time }
  end
  {
    units: count,
    switches_asked: yields ? count * nutrients * rounds.size : 0,
    switches_made: made,
    rounds: rounds,
    eaten: eaten
  }
end

begin
  puts JSON.generate(sample: sample(ARGV.map { |argument| argument.split("=", 2) }.to_h))
rescue ThreadError, FiberError, SystemCallError, NoMemoryError => error
  puts JSON.generate(failure: { message: "#{error.class}: #{error.message}" })
  exit 1
end
