# Switch and allocation of Ruby, by hand: nanoseconds on standard output.
what, unit, count = ARGV[0], ARGV[1], ARGV[2].to_i

def nanoseconds
  before = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
  yield
  Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - before
end

def fiber_switch(count)
  fiber = Fiber.new { loop { Fiber.yield } }
  fiber.resume
  nanoseconds { count.times { fiber.resume } }
end

def fiber_alloc(count)
  nanoseconds do
    fibers = Array.new(count) { Fiber.new { Fiber.yield; Fiber.yield } }
    3.times { fibers.each(&:resume) }
  end
end

def thread_switch(count)
  rounds = count / 2
  nanoseconds do
    2.times.map { Thread.new { rounds.times { Thread.pass } } }.each(&:join)
  end
end

def thread_alloc(count)
  lock, all, begun = Mutex.new, ConditionVariable.new, 0
  nanoseconds do
    threads = Array.new(count) do
      Thread.new do
        lock.synchronize do
          begun += 1
          all.broadcast if begun == count
          all.wait(lock) until begun == count
        end
        Thread.pass
      end
    end
    threads.each(&:join)
  end
end

puts send("#{unit}_#{what}", count) / count.to_f
