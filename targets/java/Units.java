import java.io.IOException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;

/** Measures virtual and platform threads by the protocol of docs/targets.md. Runs on Java 11 and newer. */
public final class Units {
    private static final int WARMUP_UNITS = 100;

    /** The number of the unit that yielded last. */
    private static volatile int turn;

    private static final class Round {
        long create;
        long run;
        long made;
    }

    private interface Phase {
        void stop(String name) throws IOException;
    }

    /** Starts a thread of a kind. Virtual ones by reflection, so that older compilers take this file. */
    private static Function<Runnable, Thread> starter(String unit) throws Orders.Failed {
        if (unit.equals("platform")) {
            return work -> {
                Thread thread = new Thread(work);
                thread.start();
                return thread;
            };
        }
        if (!unit.equals("virtual")) {
            throw new Orders.Failed("there is no unit '" + unit + "'; the units are platform and virtual", null);
        }
        try {
            Method start = Thread.class.getMethod("startVirtualThread", Runnable.class);
            return work -> {
                try {
                    return (Thread) start.invoke(null, work);
                } catch (ReflectiveOperationException error) {
                    throw new IllegalStateException(error);
                }
            };
        } catch (NoSuchMethodException error) {
            throw new Orders.Failed("this Java has no virtual threads", "Java 21 or newer");
        }
    }

    private static Round run(
            Function<Runnable, Thread> starter, int units, int switches, Phase alive)
            throws Orders.Failed, IOException, InterruptedException {
        CountDownLatch born = new CountDownLatch(units);
        CountDownLatch gate = new CountDownLatch(1);
        AtomicLong made = new AtomicLong();
        List<Thread> threads = new ArrayList<>(units);
        Round round = new Round();
        long start = System.nanoTime();
        for (int i = 0; i < units; i++) {
            int number = i + 1;
            Runnable work = () -> {
                int switched = gate.getCount() > 0 ? 1 : 0;
                born.countDown();
                try {
                    gate.await();
                } catch (InterruptedException error) {
                    return;
                }
                for (int s = 1; s < switches; s++) {
                    turn = number;
                    Thread.yield();
                    if (turn != number) {
                        switched++;
                    }
                }
                made.addAndGet(switched);
            };
            try {
                threads.add(starter.apply(work));
            } catch (OutOfMemoryError error) {
                gate.countDown();
                throw new Orders.Failed(
                        "thread " + number + " of " + units + " could not be started: " + error.getMessage(),
                        "raise the limits on processes (ulimit -u, pids.max), or use --units");
            }
        }
        born.await();
        round.create = System.nanoTime() - start;
        alive.stop("alive");
        start = System.nanoTime();
        gate.countDown();
        for (Thread thread : threads) {
            thread.join();
        }
        round.run = System.nanoTime() - start;
        round.made = made.get();
        return round;
    }

    private static String take(Orders orders) throws Exception {
        Function<Runnable, Thread> starter = starter(orders.word("unit", ""));
        int units = orders.number("units", 1);
        int switches = orders.number("switches", 1);
        int rounds = orders.number("rounds", 1);
        int warmup = orders.number("warmup", 0);
        Phase nothing = name -> {};
        Phase phase = orders::phase;

        long warming = 0;
        for (int i = 0; i < warmup; i++) {
            Round round = run(starter, Math.min(units, WARMUP_UNITS), switches, nothing);
            warming += round.create + round.run;
        }

        phase.stop("base");
        long[] before = Orders.collections();
        StringBuilder times = new StringBuilder();
        long made = 0;
        for (int i = 0; i < rounds; i++) {
            boolean first = i == 0;
            Round round = run(starter, units, switches, first ? phase : nothing);
            times.append(first ? "" : ",");
            times.append(Orders.round(round.create, round.run));
            made += round.made;
            if (first) {
                phase.stop("done");
            }
        }
        long[] after = Orders.collections();
        StringBuilder line = new StringBuilder("\"units\":").append(units);
        line.append(",\"switches_asked\":").append((long) units * switches * rounds);
        line.append(",\"switches_made\":").append(made);
        line.append(",\"rounds\":[").append(times).append("]");
        line.append(",\"gc\":{\"on\":true,\"collections\":").append(after[0] - before[0]);
        line.append(",\"ns\":").append(after[1] - before[1]).append("}");
        if (warmup > 0) {
            line.append(",\"warmup\":{\"rounds\":").append(warmup);
            line.append(",\"ns\":").append(warming).append("}");
        }
        return line.toString();
    }

    public static void main(String[] arguments) {
        Orders.answer(arguments, Units::take);
    }
}
