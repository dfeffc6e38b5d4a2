// Switch and allocation of C++, by hand: nanoseconds on standard output. With -DFIBERS, Boost's fibers.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#ifdef FIBERS
#include <boost/fiber/all.hpp>
namespace lib = boost::fibers;
namespace self = boost::this_fiber;
using Unit = boost::fibers::fiber;
#else
#include <condition_variable>
#include <mutex>
#include <thread>
namespace lib = std;
namespace self = std::this_thread;
using Unit = std::thread;
#endif

int main(int, char **arguments) {
    const bool switching = !std::strcmp(arguments[1], "switch");
    const long count = std::atol(arguments[3]);
    const long units = switching ? 2 : count, yields = switching ? count / 2 : 1;
    lib::mutex mutex;
    lib::condition_variable changed;
    long waiting = 0;
    auto begin = std::chrono::steady_clock::now();
    std::list<Unit> all;
    for (long i = 0; i < units; ++i)
        all.emplace_back([&] {
            {
                std::unique_lock<lib::mutex> lock(mutex);
                if (++waiting == units) {
                    begin = switching ? std::chrono::steady_clock::now() : begin;
                    changed.notify_all();
                }
                changed.wait(lock, [&] { return waiting == units; });
            }
            for (long i = 0; i < yields; ++i) self::yield();
        });
    for (auto &unit : all) unit.join();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    std::printf("%f\n", took.count() / count);
}
