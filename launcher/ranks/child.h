// Child: a process that this one starts and answers for: a program, or a fork of this one. It leads a process
// group of its own (a terminal's Ctrl-C does not reach it), reads nothing or a pipe, writes into pipes, and
// is killed by the kernel when this process ends in whatever way. Invariant: no Child outlives its object.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dstrain {

// A file descriptor that is closed with its object.
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

// A pipe whose read end does not block; both ends are closed on exec. Throws RunError.
struct Pipe {
  Pipe();
  Descriptor read;
  Descriptor write;
};

using Environment = std::vector<std::pair<std::string, std::string>>;

// This process's variables, those of `added` over them, as exec takes them ("NAME=VALUE").
std::vector<std::string> merged_environment(const Environment& added);

// Addresses of the texts and a null, as exec takes them. Valid as long as the texts are.
std::vector<char*> exec_pointers(std::vector<std::string>& texts);

class Child {
 public:
  // `one`: it reads nothing, standard output and error are one pipe; `three`: a pipe for each.
  enum class Pipes { one, three };

  // Starts `command` (the first word is a path) with this process's environment and `added`, which
  // wins. Throws RunError where it cannot be started.
  Child(const std::vector<std::string>& command, const Environment& added,
        Pipes pipes = Pipes::one);
  // Starts a fork of this process that does `body` with `added` in its environment and ends with what
  // it returns (2 where it throws, after saying what). One pipe. No other thread of this process may be
  // at work: in the fork there is none of them. Throws RunError.
  Child(const std::function<int()>& body, const Environment& added);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  pid_t pid() const { return pid_; }
  // What it writes to standard output (and error, where there is one pipe). Non-blocking.
  int output() const { return output_.read.get(); }
  // With three pipes: what it reads, and what it writes to standard error. Non-blocking.
  int input() const { return input_.write.get(); }
  int errors() const { return errors_.read.get(); }
  // Its wait status once it has ended. Does not block.
  std::optional<int> ended();
  // Sends a signal to its process group; nothing once it has ended.
  void signal(int number);

 private:
  bool fork(const std::string& what);
  void keep_own_ends();

  pid_t pid_ = -1;
  Pipe output_, input_, errors_;
  std::optional<int> status_;
};

}  // namespace dstrain
