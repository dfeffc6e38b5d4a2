require 'timeout'
$stdout.sync = true
p 500.times.map { |i| Thread.new { i } }.sum(&:value)
there, back = Queue.new, Queue.new
echo = Thread.new { while (value = there.pop) do back << value * 2 end }
p 1000.times.sum { |i| there << i; back.pop }
there << nil
echo.join
came = []
trap(:USR1) { came << :usr1 }
Process.kill(:USR1, $$)
sleep 0.05
p came
p((Timeout.timeout(0.02) { sleep 10 } rescue $!.class))
p `grep SigBlk /proc/self/status`
pid = fork { Thread.new { puts "in the child" }.join; exit 5 }
Process.wait(pid)
p $?.exitstatus
sleeping = Thread.new { sleep }
sleep 0.01
sleeping.kill
p sleeping.join(5) == sleeping
