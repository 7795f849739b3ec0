// RelayEnd: one end of a relay. It carries bytes between a program's pipes and the other end, to which a SealedStream
// leads.
#pragma once

#include <string>
#include <string_view>

#include "launcher/connection/sealed_stream.h"
#include "launcher/process/descriptor.h"

namespace dstrain {

class RelayEnd {
 public:
  // `asks`: the end that asked for a command, which waits until the other end has begun to run it. `runs`: the other.
  enum class Role { asks, runs };

  // `connection`: a socket whose ends have proved to know a key, from which `keys` follow. What is read from `in` goes
  // to the other end, and what comes from there to `out`, which is closed at its end. The caller keeps owning `in`.
  RelayEnd(Role role, Descriptor connection, DirectionKeys keys, int in, Descriptor out);

  // Waits until something can be done, for `timeout_ms` at most (-1: for any time), and does it.
  void step(int timeout_ms);

  // Whether the other end has begun, whether all of `in` was sent, and whether all has come from the other end.
  bool begun() const { return begun_; }
  bool sent_all() const { return in_ < 0 && stream_.unsent() == 0; }
  bool received_all() const { return ended_ && unwritten_.empty(); }
  // Whether the connection has ended or fault() says why it is not to be trusted, and nothing is left to be written.
  bool lost() const { return lost_ && unwritten_.empty(); }
  // Why one of the ends has given up: bytes have arrived that its other end has not sent. Empty if none has.
  const std::string& fault() const { return fault_; }
  // Whether nobody reads `out` any more. What comes is then dropped.
  bool reader_gone() const { return reader_gone_; }

 private:
  void read_input();
  void receive();
  void use(Frame kind, std::string_view bytes);
  void write_output();

  Descriptor connection_;
  SealedStream stream_;
  int in_;  // -1 once it has ended
  Descriptor out_;
  std::string unwritten_, fault_;
  bool begun_, ended_ = false, lost_ = false, reader_gone_ = false;
};

}  // namespace dstrain
