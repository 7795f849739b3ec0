// Descriptor: a file descriptor that closes itself. Pipe: a pair of them. Also the descriptors of the standard streams.
#pragma once

#include <utility>

namespace dstrain {

// Owns a file descriptor and closes it. -1 is none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();

  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// A pipe. Reading does not block, writing does. Both ends are closed on exec.
struct Pipe {
  // Throws RunError if the system refuses the pipe.
  Pipe();
  Descriptor read;
  Descriptor write;
};

// Opens /dev/null on each standard stream that is closed. Must be called before any file is opened: a file that got the
// number of a standard stream would take what the program writes there. Such a stream reads as empty; writing to it
// fails, as on a closed one, so that a command whose result goes nowhere says so.
void open_closed_streams();

}  // namespace dstrain
