import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;

/** Switch and allocation of Java, by hand: nanoseconds on standard output. */
final class ByHand {
    private static double run(boolean virtual, boolean switching, int count) throws InterruptedException {
        int units = switching ? 2 : count;
        int yields = switching ? count / 2 : 1;
        CountDownLatch all = new CountDownLatch(units);
        List<Thread> threads = new ArrayList<>();
        // With the creation of two: a clock that started behind the latch would wait for the core first.
        long start = System.nanoTime();
        for (int i = 0; i < units; i++) {
            Runnable work = () -> {
                all.countDown();
                try {
                    all.await();
                } catch (InterruptedException error) {
                    throw new IllegalStateException(error);
                }
                for (int j = 0; j < yields; j++) {
                    Thread.yield();
                }
            };
            threads.add(virtual ? Thread.ofVirtual().start(work) : Thread.ofPlatform().start(work));
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return (System.nanoTime() - start) / (double) count;
    }

    public static void main(String[] arguments) throws InterruptedException {
        boolean virtual = arguments[1].equals("virtual");
        boolean switching = arguments[0].equals("switch");
        int warm = virtual ? 100 : 20;
        for (int i = 0; i < warm; i++) {
            // As many switches as the lab's warm-up has: the compiler is done with them only then.
            run(virtual, switching, switching ? 20_000 : 100);
        }
        System.out.println(run(virtual, switching, Integer.parseInt(arguments[2])));
    }
}
