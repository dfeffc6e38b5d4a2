// Measures threads, or with -DFIBERS Boost's fibers, by the protocol of docs/targets.md. The two
// have the same interface: one program does for both.

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <iostream>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#ifdef FIBERS
#include <boost/fiber/all.hpp>
namespace api = boost::fibers;
namespace here = boost::this_fiber;
using Unit = boost::fibers::fiber;
static const char *const NAME = "fiber";
#else
namespace api = std;
namespace here = std::this_thread;
using Unit = std::thread;
static const char *const NAME = "thread";
#endif

static const std::uint64_t WARMUP_UNITS = 100;

struct Round {
    std::int64_t create = 0, run = 0;
    std::uint64_t made = 0;
};

// No sample can be taken.
struct Failed : std::runtime_error {
    std::string advice;
    Failed(const std::string &message, const std::string &advice)
        : std::runtime_error(message), advice(advice) {}
};

static std::int64_t now() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Gate {
    api::mutex mutex;
    api::condition_variable all_born, opened;
    std::uint64_t born = 0;
    bool open = false;
    // The number of the unit that yielded last.
    std::atomic<std::uint64_t> turn{0};
    std::atomic<std::uint64_t> made{0};
};

static void unit(Gate &gate, std::uint64_t number, std::uint64_t units, std::uint64_t switches) {
    std::uint64_t switched;
    {
        std::unique_lock<api::mutex> lock(gate.mutex);
        switched = gate.open ? 0 : 1;
        if (++gate.born == units) gate.all_born.notify_one();
        gate.opened.wait(lock, [&] { return gate.open; });
    }
    for (std::uint64_t s = 1; s < switches; ++s) {
        gate.turn.store(number, std::memory_order_relaxed);
        here::yield();
        switched += gate.turn.load(std::memory_order_relaxed) != number;
    }
    gate.made += switched;
}

template <typename AllAlive>
static Round run(std::uint64_t units, std::uint64_t switches, AllAlive all_alive) {
    Round round;
    Gate gate;
    std::vector<Unit> all;
    all.reserve(units);
    auto release = [&] {
        std::unique_lock<api::mutex> lock(gate.mutex);
        gate.open = true;
        gate.opened.notify_all();
    };
    auto start = now();
    for (std::uint64_t number = 1; number <= units; ++number) {
        try {
            all.emplace_back([&gate, number, units, switches] { unit(gate, number, units, switches); });
        } catch (const std::system_error &error) {
            release();
            for (auto &one : all) one.join();
            throw Failed(std::string(NAME) + " " + std::to_string(number) + " of " + std::to_string(units) +
                             " could not be started: " + error.what(),
                         "raise the limits on processes (ulimit -u, pids.max), or use --units");
        }
    }
    {
        std::unique_lock<api::mutex> lock(gate.mutex);
        gate.all_born.wait(lock, [&] { return gate.born == units; });
    }
    round.create = now() - start;
    all_alive();
    start = now();
    release();
    for (auto &one : all) one.join();
    round.run = now() - start;
    round.made = gate.made;
    return round;
}

static std::int64_t ns(const timeval &from, const timeval &to) {
    return (to.tv_sec - from.tv_sec) * 1000000000LL + (to.tv_usec - from.tv_usec) * 1000LL;
}

static void take(const std::map<std::string, std::string> &orders) {
    auto number = [&](const char *key, std::uint64_t missing) -> std::uint64_t {
        auto found = orders.find(key);
        return found == orders.end() ? missing : std::stoull(found->second);
    };
    auto name = orders.find("unit");
    if (name == orders.end() || name->second != NAME)
        throw Failed(std::string("this program has no unit but ") + NAME, "");
    const auto units = number("units", 1), switches = number("switches", 1);
    const auto rounds = number("rounds", 1), warmup = number("warmup", 0);
    const bool phases = number("phases", 0) > 0;
    auto stop = [&](const char *phase) {
        if (!phases) return;
        std::cout << "{\"phase\":\"" << phase << "\"}" << std::endl;
        std::string line;
        std::getline(std::cin, line);
    };

    std::int64_t warming = 0;
    for (std::uint64_t i = 0; i < warmup; ++i) {
        const auto round = run(std::min(units, WARMUP_UNITS), switches, [] {});
        warming += round.create + round.run;
    }
    stop("base");
    rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    std::string times;
    std::uint64_t made = 0;
    for (std::uint64_t i = 0; i < rounds; ++i) {
        const auto round = run(units, switches, [&] { if (i == 0) stop("alive"); });
        times += (i ? ",{\"create_ns\":" : "{\"create_ns\":") + std::to_string(round.create) +
                 ",\"run_ns\":" + std::to_string(round.run) + "}";
        made += round.made;
        if (i == 0) stop("done");
    }
    getrusage(RUSAGE_SELF, &after);
    std::cout << "{\"sample\":{\"units\":" << units << ",\"switches_asked\":" << units * switches * rounds
              << ",\"switches_made\":" << made << ",\"rounds\":[" << times << "]"
              << ",\"voluntary\":" << after.ru_nvcsw - before.ru_nvcsw
              << ",\"involuntary\":" << after.ru_nivcsw - before.ru_nivcsw
              << ",\"user_ns\":" << ns(before.ru_utime, after.ru_utime)
              << ",\"system_ns\":" << ns(before.ru_stime, after.ru_stime);
    if (warmup) std::cout << ",\"warmup\":{\"rounds\":" << warmup << ",\"ns\":" << warming << "}";
    std::cout << "}}" << std::endl;
}

int main(int count, char **arguments) {
    std::map<std::string, std::string> orders;
    for (int i = 1; i < count; ++i) {
        const std::string argument = arguments[i];
        const auto at = argument.find('=');
        if (at != std::string::npos) orders[argument.substr(0, at)] = argument.substr(at + 1);
    }
    try {
        take(orders);
    } catch (const Failed &failed) {
        std::cout << "{\"failure\":{\"message\":\"" << failed.what() << "\",\"advice\":";
        if (failed.advice.empty()) std::cout << "null}}" << std::endl;
        else std::cout << "\"" << failed.advice << "\"}}" << std::endl;
        return 1;
    }
    return 0;
}
