// The feed workload of docs/targets.md: people who need so many bites each, fed by threads or by
// Boost fibers on one thread; by fibers over a few threads; or by processes with fibers in each.
// Without FIBERS it has threads alone.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#ifdef FIBERS
#include <boost/fiber/fiber.hpp>
#include <boost/fiber/operations.hpp>
#endif

namespace {

class Person {
 public:
  explicit Person(std::uint64_t need) : need_(need) {}

  bool satisfied() const { return iron_ == need_ && calcium_ == need_ && fiber_ == need_; }

  void bite() {
    ++iron_;
    ++calcium_;
    ++fiber_;
    // Without this, the compiler makes one addition of a whole meal.
    asm volatile("" : : "r"(this) : "memory");
  }

  std::uint64_t eaten() const { return iron_ + calcium_ + fiber_; }

 private:
  std::uint64_t need_;
  std::uint64_t iron_ = 0;
  std::uint64_t calcium_ = 0;
  std::uint64_t fiber_ = 0;
};

using People = std::vector<Person>;

// As by_threads, of threads whose switches are not the kernel's. `last` is as in by_fibers.
std::uint64_t by_counted_threads(People& people) {
  std::atomic<std::uint64_t> made{0};
  std::atomic<Person*> last{nullptr};
  std::vector<std::thread> threads;
  for (Person& person : people) {
    threads.emplace_back([&made, &last, &person] {
      std::uint64_t mine = 0;
      while (!person.satisfied()) {
        person.bite();
        last.store(&person, std::memory_order_relaxed);
        std::this_thread::yield();
        if (last.load(std::memory_order_relaxed) != &person) ++mine;
      }
      made += mine;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return made;
}

// Switches of the kernel's are counted by the kernel.
void by_threads(People& people, bool yields) {
  std::vector<std::thread> threads;
  for (Person& person : people) {
    threads.emplace_back([&person, yields] {
      while (!person.satisfied()) {
        person.bite();
        if (yields) std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

#ifdef FIBERS
// On the calling thread. `last` is the person that ate last: a yield after which it is still the same
// one made no switch.
std::uint64_t by_fibers(Person* begin, Person* end, bool yields) {
  std::uint64_t made = 0;
  Person* last = nullptr;
  std::vector<boost::fibers::fiber> fibers;
  for (Person* person = begin; person != end; ++person) {
    fibers.emplace_back([&made, &last, person, yields] {
      while (!person->satisfied()) {
        person->bite();
        if (yields) {
          last = person;
          boost::this_fiber::yield();
          if (last != person) ++made;
        }
      }
    });
  }
  for (boost::fibers::fiber& fiber : fibers) fiber.join();
  return made;
}
#else
std::uint64_t by_fibers(Person*, Person*, bool) {
  throw std::runtime_error("this was built without Boost.Fiber");
}
#endif

// Where the share of each of `workers` begins, and where the last one ends.
std::size_t share(const People& people, std::size_t workers, std::size_t at) {
  return people.size() * at / workers;
}

std::uint64_t over_threads(People& people, bool yields, std::size_t workers) {
  std::vector<std::uint64_t> made(workers);
  std::vector<std::thread> threads;
  for (std::size_t at = 0; at < workers; ++at) {
    Person* begin = people.data() + share(people, workers, at);
    Person* end = people.data() + share(people, workers, at + 1);
    threads.emplace_back([&made, at, begin, end, yields] {
      made[at] = by_fibers(begin, end, yields);
    });
  }
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at < workers; ++at) {
    threads[at].join();
    sum += made[at];
  }
  return sum;
}

struct Told {
  std::uint64_t made;
  std::uint64_t eaten;
};

// What is eaten in another process cannot be seen from here: it comes back as a number.
Told over_processes(People& people, bool yields, std::size_t workers) {
  std::vector<int> pipes;
  for (std::size_t at = 0; at < workers; ++at) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("no process");
    if (child == 0) {
      Person* begin = people.data() + share(people, workers, at);
      Person* end = people.data() + share(people, workers, at + 1);
      Told told{by_fibers(begin, end, yields), 0};
      for (Person* person = begin; person != end; ++person) {
        if (person->satisfied()) told.eaten += person->eaten();
      }
      const bool whole = write(ends[1], &told, sizeof told) == sizeof told;
      _exit(whole ? 0 : 1);
    }
    close(ends[1]);
    pipes.push_back(ends[0]);
  }
  Told sum{0, 0};
  for (int end : pipes) {
    Told told{0, 0};
    if (read(end, &told, sizeof told) != sizeof told) {
      throw std::runtime_error("a process did not say what it did");
    }
    close(end);
    wait(nullptr);
    sum.made += told.made;
    sum.eaten += told.eaten;
  }
  return sum;
}

using Orders = std::map<std::string, std::string>;

std::string get(const Orders& orders, const std::string& key, const std::string& missing) {
  const auto found = orders.find(key);
  return found == orders.end() ? missing : found->second;
}

void take(const Orders& orders) {
  const std::uint64_t count = std::stoull(get(orders, "units", "1"));
  const std::uint64_t nutrients = std::stoull(get(orders, "nutrients", "1"));
  const std::uint64_t rounds = std::stoull(get(orders, "rounds", "1"));
  const bool yields = get(orders, "yields", "0") == "1";
  const bool threads = get(orders, "unit", "") == "thread";
  const bool kernel = get(orders, "kernel", "1") == "1";
  const std::string how = get(orders, "how", "units");
  const auto workers =
      std::max<std::uint64_t>(1, std::min<std::uint64_t>(std::stoull(get(orders, "workers", "2")), count));
  std::uint64_t made = 0;
  std::uint64_t eaten = 0;
  std::string times;
  rusage before{};
  rusage after{};
  getrusage(RUSAGE_SELF, &before);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    People people(count, Person(nutrients));
    const auto start = std::chrono::steady_clock::now();
    if (how == "processes") {
      const Told told = over_processes(people, yields, workers);
      made += told.made;
      eaten += told.eaten;
    } else if (how == "hybrid") {
      made += over_threads(people, yields, workers);
    } else if (threads && yields && !kernel) {
      made += by_counted_threads(people);
    } else if (threads) {
      by_threads(people, yields);
    } else {
      made += by_fibers(people.data(), people.data() + people.size(), yields);
    }
    const auto time = std::chrono::steady_clock::now() - start;
    for (const Person& person : people) {
      if (person.satisfied() && how != "processes") eaten += person.eaten();
    }
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
    times += (round == 0 ? "" : ",");
    times += "{\"create_ns\":0,\"run_ns\":" + std::to_string(ns) + "}";
  }
  getrusage(RUSAGE_SELF, &after);
  const std::uint64_t asked = yields ? count * nutrients * rounds : 0;
  const std::uint64_t voluntary = after.ru_nvcsw - before.ru_nvcsw;
  const std::uint64_t involuntary = after.ru_nivcsw - before.ru_nivcsw;
  if (threads && kernel) made = std::min(asked, voluntary + involuntary);
  std::cout << "{\"sample\":{\"units\":" << count << ",\"switches_asked\":" << asked
            << ",\"switches_made\":" << made << ",\"rounds\":[" << times
            << "],\"voluntary\":" << voluntary << ",\"involuntary\":" << involuntary
            << ",\"eaten\":" << eaten << "}}" << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Orders orders;
  for (int at = 1; at < argc; ++at) {
    const std::string argument = argv[at];
    const std::size_t equals = argument.find('=');
    if (equals != std::string::npos) {
      orders[argument.substr(0, equals)] = argument.substr(equals + 1);
    }
  }
  try {
    take(orders);
    return 0;
  } catch (const std::exception& error) {
    std::cout << "{\"failure\":{\"message\":\"" << error.what() << "\"}}" << std::endl;
    // Threads that were started and not joined would abort on the way out.
    _exit(1);
  }
}
