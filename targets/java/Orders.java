import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.util.HashMap;
import java.util.Map;

/**
 * What the programs of this target share: orders in, phases, and one line out, as docs/targets.md
 * has it. Runs on Java 11 and newer.
 */
final class Orders {
    /** No sample can be taken; what would help, where that is known. */
    static final class Failed extends Exception {
        final String advice;

        Failed(String message, String advice) {
            super(message);
            this.advice = advice;
        }
    }

    /** Makes the fields of a sample from orders. */
    interface Take {
        String sample(Orders orders) throws Throwable;
    }

    private final Map<String, String> words = new HashMap<>();
    private final BufferedReader input = new BufferedReader(new InputStreamReader(System.in));

    private Orders(String[] arguments) {
        for (String argument : arguments) {
            String[] order = argument.split("=", 2);
            words.put(order[0], order.length > 1 ? order[1] : "");
        }
    }

    String word(String key, String missing) {
        return words.getOrDefault(key, missing);
    }

    int number(String key, int missing) {
        return Integer.parseInt(word(key, Integer.toString(missing)));
    }

    boolean isSet(String key) {
        return word(key, "0").equals("1");
    }

    /** Stops, if that was ordered, until the lab has looked at this process. */
    void phase(String name) throws IOException {
        if (isSet("phases")) {
            System.out.println("{\"phase\":\"" + name + "\"}");
            System.out.flush();
            input.readLine();
        }
    }

    /** Tells the lab where the server listens, and returns when the server is to end. */
    void serving(int port) throws IOException {
        System.out.println("{\"phase\":\"serving\",\"port\":" + port + "}");
        System.out.flush();
        input.readLine();
    }

    /** Takes a sample, prints it, or why there is none, and ends the process. */
    static void answer(String[] arguments, Take take) {
        // The first look loads some hundred classes. Right before a round that counts, that would double
        // the round's time (virtual threads' alloc, 1,000 units: 8.4 us each in place of 4.2).
        collections();
        try {
            System.out.println("{\"sample\":{" + take.sample(new Orders(arguments)) + "}}");
        } catch (Failed failed) {
            fail(failed.getMessage(), failed.advice);
        } catch (Throwable error) {
            fail(error.toString(), null);
        }
        // A client's own threads may be there still; nothing keeps the process.
        System.exit(0);
    }

    private static void fail(String message, String advice) {
        System.out.println("{\"failure\":{\"message\":" + quoted(message) + ",\"advice\":"
                + (advice == null ? "null" : quoted(advice)) + "}}");
        System.exit(1);
    }

    private static String quoted(String text) {
        return '"' + text.replaceAll("[\"\\\\\\p{Cntrl}]", " ") + '"';
    }

    /** A round, as a sample tells of it. */
    static String round(long createNs, long runNs) {
        return "{\"create_ns\":" + createNs + ",\"run_ns\":" + runNs + "}";
    }

    /** Collections so far, and how long they took, nanoseconds. */
    static long[] collections() {
        long[] sum = {0, 0};
        for (GarbageCollectorMXBean bean : ManagementFactory.getGarbageCollectorMXBeans()) {
            sum[0] += Math.max(0, bean.getCollectionCount());
            sum[1] += Math.max(0, bean.getCollectionTime()) * 1_000_000;
        }
        return sum;
    }
}
