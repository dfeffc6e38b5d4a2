// Boost.Context and Boost.Fiber, behind a C interface. `boost.rs` declares the same names.
//
// Both are used as their documentation's first examples use them, with one kindness: units that
// come and go in crowds take their stacks from Boost's pool, which measures faster than the
// default allocator.

#include <boost/context/continuation.hpp>
#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <boost/fiber/all.hpp>
#include <boost/version.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

namespace {

using boost::context::fixedsize_stack;
using boost::context::pooled_fixedsize_stack;
using boost::fibers::fiber;

} // namespace

extern "C" {

struct boost_answer {
    std::uint64_t yields;
    std::uint64_t switched;
};

std::uint32_t boost_version() { return BOOST_VERSION; }

/// Resumes a context `rounds` times, which suspends itself as often. Returns the sum of the round
/// numbers that went in and came out again.
std::uint64_t boost_context_rounds(std::uint64_t rounds) {
    namespace ctx = boost::context;
    std::uint64_t ball = 0;
    bool done = false;
    ctx::fiber other{[&](ctx::fiber&& main) {
        while (!done) {
            ball += 1;
            main = std::move(main).resume();
        }
        return std::move(main);
    }};
    std::uint64_t sum = 0;
    for (std::uint64_t round = 0; round < rounds; ++round) {
        ball = round;
        other = std::move(other).resume();
        sum += ball;
    }
    done = true;
    other = std::move(other).resume();
    return sum;
}

/// `units` fibers that each yield `yields` times, started and joined by the calling one.
boost_answer boost_fiber_crowd(std::size_t units, std::uint64_t yields) {
    static pooled_fixedsize_stack stacks{fixedsize_stack::traits_type::default_size()};
    boost_answer answer{0, 0};
    std::size_t volatile turn = units;
    std::vector<fiber> fibers;
    fibers.reserve(units);
    for (std::size_t me = 0; me < units; ++me) {
        fibers.emplace_back(std::allocator_arg, stacks, [&answer, &turn, me, yields] {
            std::uint64_t switched = 0;
            for (std::uint64_t i = 0; i < yields; ++i) {
                turn = me;
                boost::this_fiber::yield();
                switched += turn != me;
            }
            answer.yields += yields;
            answer.switched += switched;
        });
    }
    for (auto& each : fibers) each.join();
    return answer;
}

/// `units` fibers that each sleep. Returns how many slept long enough.
std::size_t boost_fiber_sleepers(std::size_t units, std::uint64_t nanoseconds) {
    using clock = std::chrono::steady_clock;
    static pooled_fixedsize_stack stacks{fixedsize_stack::traits_type::default_size()};
    std::chrono::nanoseconds const span{nanoseconds};
    std::size_t slept = 0;
    std::vector<fiber> fibers;
    fibers.reserve(units);
    for (std::size_t i = 0; i < units; ++i) {
        fibers.emplace_back(std::allocator_arg, stacks, [&slept, span] {
            auto const start = clock::now();
            boost::this_fiber::sleep_for(span);
            slept += clock::now() - start >= span;
        });
    }
    for (auto& each : fibers) each.join();
    return slept;
}

/// `units` fibers, all waiting at once while `look` is called. Returns how many waited.
std::size_t boost_fiber_parked(std::size_t units, void (*look)(void*), void* context) {
    boost::fibers::mutex mutex;
    boost::fibers::condition_variable release;
    std::size_t waiting = 0, waited = 0;
    bool released = false;
    std::vector<fiber> fibers;
    try {
        fibers.reserve(units);
        for (std::size_t i = 0; i < units; ++i) {
            fibers.emplace_back([&] {
                std::unique_lock<boost::fibers::mutex> lock{mutex};
                ++waiting;
                release.wait(lock, [&] { return released; });
                ++waited;
            });
        }
        while (waiting < units) boost::this_fiber::yield();
        look(context);
    } catch (std::bad_alloc const&) {
        // No more stacks: let those go that there are and return their number, too small.
        units = 0;
    }
    {
        std::unique_lock<boost::fibers::mutex> lock{mutex};
        released = true;
    }
    release.notify_all();
    for (auto& each : fibers) each.join();
    return units == 0 ? 0 : waited;
}

} // extern "C"
