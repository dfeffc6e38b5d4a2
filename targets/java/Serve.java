import com.sun.net.httpserver.HttpServer;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * The serve workload of docs/targets.md: the JDK's com.sun.net.httpserver, with a thread for each
 * request that is under way: platform threads of a pool, or virtual ones.
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

    private static String serve(Orders orders) throws Throwable {
        if (!orders.word("kind", "").equals("plain")) {
            throw new IllegalArgumentException(
                    "there is no kind '" + orders.word("kind", "") + "' of servers here");
        }
        // Its default keeps 200 idle connections, and closes the others.
        System.setProperty("sun.net.httpserver.maxIdleConnections", "100000");
        // Else the kernel holds back the body, which it sends apart from the head.
        System.setProperty("sun.net.httpserver.nodelay", "true");
        InetAddress here = InetAddress.getByName("127.0.0.1");
        HttpServer server = HttpServer.create(new InetSocketAddress(here, 0), 1024);
        server.setExecutor(executor(orders.word("unit", "")));
        server.createContext("/", exchange -> {
            String path = exchange.getRequestURI().getPath();
            byte[] body = ("carefree " + path + "\n").getBytes(StandardCharsets.UTF_8);
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
