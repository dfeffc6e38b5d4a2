import java.io.IOException;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.regex.Pattern;

/**
 * The feed workload of docs/targets.md: people who need so many bites each, fed by platform
 * threads; by virtual threads on one carrier or on a few; or by processes with virtual threads in
 * each.
 */
public final class Feed {
    static final class Person {
        private final long need;
        private long iron;
        private long calcium;
        private long fiber;

        Person(long need) {
            this.need = need;
        }

        boolean isSatisfied() {
            return iron == need && calcium == need && fiber == need;
        }

        void bite() {
            iron++;
            calcium++;
            fiber++;
        }

        long eaten() {
            return iron + calcium + fiber;
        }
    }

    /** The person that ate last: a yield after which it is still the same one made no switch. */
    private static volatile Person last;

    private static long eat(Person person, boolean yields) {
        long made = 0;
        while (!person.isSatisfied()) {
            person.bite();
            if (yields) {
                last = person;
                Thread.yield();
                if (last != person) {
                    made++;
                }
            }
        }
        return made;
    }

    /** Thread.startVirtualThread, which versions before 21 do not have. */
    private static MethodHandle startVirtual() throws ReflectiveOperationException {
        return MethodHandles.lookup().findStatic(Thread.class, "startVirtualThread",
                MethodType.methodType(Thread.class, Runnable.class));
    }

    private static long feed(List<Person> people, boolean yields, MethodHandle virtual)
            throws Throwable {
        AtomicLong made = new AtomicLong();
        AtomicReference<Throwable> wrong = new AtomicReference<>();
        List<Thread> threads = new ArrayList<>();
        for (Person person : people) {
            Runnable meal = () -> {
                try {
                    made.addAndGet(eat(person, yields));
                } catch (Throwable error) {
                    wrong.set(error);
                }
            };
            if (virtual != null) {
                threads.add((Thread) virtual.invokeExact(meal));
            } else {
                Thread thread = new Thread(meal);
                threads.add(thread);
                thread.start();
            }
        }
        for (Thread thread : threads) {
            thread.join();
        }
        if (wrong.get() != null) {
            throw wrong.get();
        }
        return made.get();
    }

    /** This program, run again for a share of the people each; what they ate comes back. */
    private static long[] overProcesses(int people, Orders orders, int workers)
            throws IOException, InterruptedException {
        String java = ProcessHandle.current().info().command().orElse("java");
        List<Process> running = new ArrayList<>();
        for (int at = 0; at < workers; at++) {
            int share = people / workers + (at < people % workers ? 1 : 0);
            running.add(new ProcessBuilder(java, "-cp", System.getProperty("java.class.path"),
                    "Feed", "unit=virtual", "units=" + share,
                    "nutrients=" + orders.word("nutrients", "1"),
                    "yields=" + orders.word("yields", "0"))
                    .redirectError(ProcessBuilder.Redirect.INHERIT).start());
        }
        long[] sums = new long[2];
        for (Process process : running) {
            String line = new String(process.getInputStream().readAllBytes());
            process.waitFor();
            sums[0] += numberAfter("switches_made", line);
            sums[1] += numberAfter("eaten", line);
        }
        return sums;
    }

    private static long numberAfter(String key, String line) throws IOException {
        var match = Pattern.compile('"' + key + "\":(\\d+)").matcher(line);
        if (!match.find()) {
            throw new IOException("a process did not say what it did, but: " + line);
        }
        return Long.parseLong(match.group(1));
    }

    private static String take(Orders orders) throws Throwable {
        int count = orders.number("units", 1);
        long nutrients = orders.number("nutrients", 1);
        boolean yields = orders.isSet("yields");
        String how = orders.word("how", "units");
        int workers = Math.max(1, Math.min(orders.number("workers", 2), count));
        MethodHandle virtual = null;
        if (orders.word("unit", "").equals("virtual")) {
            // Read when the first virtual thread starts.
            String carriers = "hybrid".equals(how) ? "" + workers : "1";
            System.setProperty("jdk.virtualThreadScheduler.parallelism", carriers);
            System.setProperty("jdk.virtualThreadScheduler.maxPoolSize", carriers);
            virtual = startVirtual();
            // What the first one costs is the runtime's start.
            feed(List.of(new Person(1)), true, virtual);
        }
        StringBuilder rounds = new StringBuilder();
        long made = 0;
        long eaten = 0;
        int recorded = orders.number("rounds", 1);
        int warmup = orders.number("warmup", 0);
        long warm = 0;
        for (int round = -warmup; round < recorded; round++) {
            List<Person> people = new ArrayList<>();
            for (int at = 0; at < count; at++) {
                people.add(new Person(nutrients));
            }
            long madeNow = 0;
            long eatenNow = 0;
            long start = System.nanoTime();
            if ("processes".equals(how)) {
                long[] theirs = overProcesses(count, orders, workers);
                madeNow = theirs[0];
                eatenNow = theirs[1];
            } else {
                madeNow = feed(people, yields, virtual);
            }
            long time = System.nanoTime() - start;
            for (Person person : people) {
                eatenNow += person.isSatisfied() ? person.eaten() : 0;
            }
            if (round < 0) {
                warm += time;
                continue;
            }
            made += madeNow;
            eaten += eatenNow;
            rounds.append(round == 0 ? "" : ",").append(Orders.round(0, time));
        }
        long asked = yields ? count * nutrients * recorded : 0;
        return "\"units\":" + count + ",\"switches_asked\":" + asked
                + ",\"switches_made\":" + made + ",\"rounds\":[" + rounds + "],\"warmup\":{\"rounds\":"
                + warmup + ",\"ns\":" + warm + "},\"gc\":{\"on\":true},\"eaten\":" + eaten;
    }

    public static void main(String[] arguments) {
        Orders.answer(arguments, Feed::take);
    }
}
