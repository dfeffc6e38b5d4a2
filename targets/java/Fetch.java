import com.sun.management.ThreadMXBean;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.management.ManagementFactory;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;

/**
 * The fetch workload of docs/targets.md: GETs by java.net.http.HttpClient, one after the other, by
 * a platform thread each or by a virtual thread each.
 */
@SuppressWarnings("deprecation") // Thread.getId: its successor came after 17
public final class Fetch {
    private static final ThreadMXBean THREADS =
            (ThreadMXBean) ManagementFactory.getThreadMXBean();

    private final HttpClient client =
            HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private final HttpRequest request;
    private final long body;
    private final int readSize;
    private final int count;
    private final String unit;
    private final MethodHandle virtual;
    /** What threads allocated that are gone by now. */
    private final AtomicLong allocatedByEnded = new AtomicLong();

    private Fetch(Orders orders) throws ReflectiveOperationException {
        HttpRequest.Builder builder = HttpRequest.newBuilder(URI.create(orders.word("url", "")));
        if (!orders.isSet("keep_alive")) {
            builder.header("Connection", "close");
        }
        request = builder.build();
        body = orders.number("body", 0);
        readSize = orders.number("read_size", 0);
        count = orders.number("units", 1);
        unit = orders.word("unit", "");
        // Thread.startVirtualThread, which versions before 21 do not have.
        virtual = unit.equals("virtual")
                ? MethodHandles.lookup().findStatic(Thread.class, "startVirtualThread",
                        MethodType.methodType(Thread.class, Runnable.class))
                : null;
    }

    private long get() throws IOException, InterruptedException {
        int status;
        long length;
        if (readSize == 0) {
            HttpResponse<byte[]> answer = client.send(request, BodyHandlers.ofByteArray());
            status = answer.statusCode();
            length = answer.body().length;
        } else {
            HttpResponse<InputStream> answer = client.send(request, BodyHandlers.ofInputStream());
            status = answer.statusCode();
            ByteArrayOutputStream all = new ByteArrayOutputStream();
            byte[] part = new byte[readSize];
            try (InputStream stream = answer.body()) {
                for (int read = stream.read(part); read >= 0; read = stream.read(part)) {
                    all.write(part, 0, read);
                }
            }
            length = all.toByteArray().length;
        }
        if (status != 200 || length != body) {
            throw new IOException(
                    "status " + status + " with " + length + " bytes, not 200 with " + body);
        }
        return length;
    }

    private long fetchAll() throws Throwable {
        if (unit.equals("sequential")) {
            long received = 0;
            for (int at = 0; at < count; at++) {
                received += get();
            }
            return received;
        }
        AtomicLong received = new AtomicLong();
        AtomicReference<Throwable> wrong = new AtomicReference<>();
        List<Thread> threads = new ArrayList<>();
        for (int at = 0; at < count; at++) {
            Runnable errand = () -> {
                try {
                    received.addAndGet(get());
                } catch (Throwable error) {
                    wrong.set(error);
                }
                if (virtual == null) {
                    allocatedByEnded.addAndGet(
                            THREADS.getThreadAllocatedBytes(Thread.currentThread().getId()));
                }
            };
            if (virtual != null) {
                threads.add((Thread) virtual.invokeExact(errand));
            } else {
                Thread thread = new Thread(errand);
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
        return received.get();
    }

    /**
     * What all threads have allocated so far: the client's own, the carriers of virtual threads,
     * ours, and those that have ended. (Virtual threads have no count of their own.)
     */
    private long allocated() {
        long sum = allocatedByEnded.get();
        for (long bytes : THREADS.getThreadAllocatedBytes(THREADS.getAllThreadIds())) {
            sum += Math.max(0, bytes);
        }
        return sum;
    }

    private static String take(Orders orders) throws Throwable {
        // Java refuses to send "Connection" unless told that it may.
        System.setProperty("jdk.httpclient.allowRestrictedHeaders", "connection");
        Fetch fetch = new Fetch(orders);
        int warmup = orders.number("warmup", 0);
        int rounds = orders.number("rounds", 1);
        long received = 0;
        long start = System.nanoTime();
        for (int round = 0; round < warmup; round++) {
            received += fetch.fetchAll();
        }
        final long warm = System.nanoTime() - start;
        orders.phase("base");
        final long collectedBefore = Orders.collections()[0];
        final long allocatedBefore = fetch.allocated();
        StringBuilder times = new StringBuilder();
        for (int round = 0; round < rounds; round++) {
            start = System.nanoTime();
            received += fetch.fetchAll();
            times.append(round == 0 ? "" : ",").append(Orders.round(0, System.nanoTime() - start));
        }
        long allocated = (fetch.allocated() - allocatedBefore) / rounds;
        long collected = Orders.collections()[0] - collectedBefore;
        orders.phase("done");
        return "\"units\":" + fetch.count + ",\"switches_asked\":0,\"switches_made\":0,"
                + "\"rounds\":[" + times + "],\"warmup\":{\"rounds\":" + warmup + ",\"ns\":" + warm
                + "},\"gc\":{\"on\":true,\"collections\":" + collected + "},\"requests\":"
                + (long) fetch.count * (warmup + rounds) + ",\"body_bytes\":" + received
                + ",\"figures\":{\"bytes_allocated\":" + allocated + "}";
    }

    public static void main(String[] arguments) {
        Orders.answer(arguments, Fetch::take);
    }
}
