# Threads of Perl's, each an interpreter: queues, conditions, a thread that is ended by a signal of Perl's own.
use threads; use threads::shared; use Thread::Queue; use Thread::Semaphore;
my $q = Thread::Queue->new; my $total :shared = 0;
my @t = map { threads->create(sub { my $s = 0; while (defined(my $x = $q->dequeue)) { $s += $x } { lock $total; $total += $s } return $s }) } 1..4;
$q->enqueue($_) for 1..2000; $q->end; $_->join for @t; print "$total\n";
my $cond :shared = 0;
my $w = threads->create(sub { lock $cond; cond_wait($cond) until $cond; "woken" });
threads->yield; sleep 0.1; { lock $cond; $cond = 1; cond_broadcast($cond) } print $w->join, "\n";
my $k = threads->create(sub { $SIG{KILL} = sub { threads->exit }; 1 while 1 });
select undef,undef,undef,0.1; $k->kill('KILL')->join; print "killed\n";
my @many = map { my $i = $_; threads->create(sub { select undef,undef,undef,0.005; $i * 2 }) } 1..30; my $s = 0; $s += $_->join for @many; print "$s\n";
{ lock $cond; print cond_timedwait($cond, time + 1) ? "no" : "timeout", "\n"; }
