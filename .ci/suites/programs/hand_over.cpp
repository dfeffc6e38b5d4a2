// Two threads that hand over to each other by a condition variable. Prints the nanoseconds of a hand-over.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

int main(int count, char **arguments) {
    const long turns = count > 1 ? std::atol(arguments[1]) : 1000;
    std::mutex mutex;
    std::condition_variable changed;
    long turn = 0;
    auto take_turns = [&](long mine) {
        for (long n = 0; n < turns; ++n) {
            std::unique_lock<std::mutex> lock(mutex);
            changed.wait(lock, [&] { return turn % 2 == mine; });
            ++turn;
            changed.notify_one();
        }
    };
    const auto begun = std::chrono::steady_clock::now();
    std::thread other(take_turns, 1);
    take_turns(0);
    other.join();
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begun;
    if (turn != 2 * turns) return 1;
    std::printf("%.1f\n", time.count() / turn);
}
