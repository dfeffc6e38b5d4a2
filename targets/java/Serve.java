import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * The serve workload of docs/targets.md: the JDK's com.sun.net.httpserver, with a thread for each
 * request that is under way: platform threads of a pool, or virtual ones. A backend is asked by
 * java.net.http's client, and the thread waits for its answer.
 */
public final class Serve {
    private static ExecutorService executor(String unit) throws Throwable {
        if (!unit.equals("virtual")) {
            return Executors.newCachedThreadPool();
        }
        // Executors.newVirtualThreadPerTaskExecutor, which versions before 21 do not have.
        return (ExecutorService) MethodHandles.lookup()
                .findStatic(Executors.class, "newVirtualThreadPerTaskExecutor",
                        MethodType.methodType(ExecutorService.class))
                .invoke();
    }

    /** What makes the body of an answer. */
    private interface Answers {
        byte[] to(String path) throws IOException;
    }

    private static byte[] ask(HttpClient client, String url) throws IOException {
        HttpRequest request = HttpRequest.newBuilder(URI.create(url)).build();
        try {
            HttpResponse<byte[]> answer =
                    client.send(request, HttpResponse.BodyHandlers.ofByteArray());
            if (answer.statusCode() != 200) {
                throw new IOException("the backend answered " + answer.statusCode());
            }
            return answer.body();
        } catch (InterruptedException interrupted) {
            throw new IOException(interrupted);
        }
    }

    private static Answers answers(Orders orders) {
        String kind = orders.word("kind", "");
        if (kind.equals("plain")) {
            return path -> ("carefree " + path + "\n").getBytes(StandardCharsets.UTF_8);
        }
        if (kind.equals("backend")) {
            // Else it asks each server whether it speaks HTTP/2.
            HttpClient client =
                    HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
            String backend = orders.word("backend", "");
            return path -> ask(client, backend + path);
        }
        throw new IllegalArgumentException("there is no kind '" + kind + "' of servers here");
    }

    private static String serve(Orders orders) throws Throwable {
        Answers answers = answers(orders);
        // Its default keeps 200 idle connections, and closes the others.
        System.setProperty("sun.net.httpserver.maxIdleConnections", "100000");
        // Else the kernel holds back the body, which it sends apart from the head.
        System.setProperty("sun.net.httpserver.nodelay", "true");
        InetAddress here = InetAddress.getByName("127.0.0.1");
        HttpServer server = HttpServer.create(new InetSocketAddress(here, 0), 1024);
        server.setExecutor(executor(orders.word("unit", "")));
        server.createContext("/", exchange -> {
            String path = exchange.getRequestURI().getPath();
            byte[] body = answers.to(path);
            exchange.getResponseHeaders().set("Content-Type", "text/plain");
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
        orders.serving(server.getAddress().getPort());
        return "\"units\":1,\"switches_asked\":0,\"switches_made\":0,\"rounds\":[]";
    }

    public static void main(String[] arguments) {
        // Threads of the pool do not keep the process.
        Orders.answer(arguments, Serve::serve);
    }
}
