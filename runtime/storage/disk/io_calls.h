// IoCalls: the system calls below the disk store, as functions that a test replaces by failing ones. Each returns
// what the system returned, or -errno.
#pragma once

#include <libaio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace dstrain {

class IoCalls {
 public:
  IoCalls() = default;
  IoCalls(const IoCalls&) = delete;
  IoCalls& operator=(const IoCalls&) = delete;
  virtual ~IoCalls() = default;

  // Returns the bytes that can still be written below a directory; nothing if they are unknown.
  virtual std::optional<int64_t> free_bytes(const std::string& directory);
  // Creates a file without a name in a directory (O_TMPFILE), for reading and writing by this user; returns its
  // descriptor.
  virtual int create_unnamed(const std::string& directory);
  // Creates a file that must not exist, for reading and writing by this user; returns its descriptor.
  virtual int create(const std::string& path);
  // Reserves the blocks of the file's first `bytes`.
  virtual int reserve(int file, int64_t bytes);
  // Makes reads and writes of the file pass the page cache by (O_DIRECT), or not.
  virtual int set_direct(int file, bool direct);
  // Reads at the beginning of the file, and returns when that is done.
  virtual int64_t read(int file, std::span<std::byte> block);
  virtual int64_t size(int file);

  // Asynchronous input and output, as in io_setup(2) and its relatives.
  virtual int setup(int most_in_flight, io_context_t* context);
  virtual int submit(io_context_t context, std::span<iocb*> requests);
  // Waits until `least` requests are complete, or the time is over.
  virtual int completions(io_context_t context, int least, std::span<io_event> events,
                          std::chrono::nanoseconds time);
  // Waits for all requests of the context.
  virtual int destroy(io_context_t context);
};

}  // namespace dstrain
