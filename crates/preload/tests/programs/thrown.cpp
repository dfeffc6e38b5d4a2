// An exception that nothing catches ends the program, and says which it was.

#include <cstdio>
#include <stdexcept>
#include <thread>

int main() {
  // One that is caught, first.
  std::thread caught([] {
    try {
      throw std::runtime_error("caught");
    } catch (const std::exception& error) {
      std::printf("%s\n", error.what());
    }
  });
  caught.join();
  std::fflush(stdout);
  std::thread thrown([] { throw std::runtime_error("thrown"); });
  thrown.join();
  return 0;
}
