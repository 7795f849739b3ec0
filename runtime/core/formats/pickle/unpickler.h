// Unpickler: the machine that reads the opcodes of a pickle. It makes nodes of them and calls nothing.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/formats/pickle/pickle.h"

namespace dstrain {

class Unpickler {
 public:
  using Node = Pickle::Node;

  // `nodes` has the node of None, and gets one for every value, whose texts are parts of `bytes`. All three must outlive
  // the object.
  Unpickler(std::string_view bytes, const std::string& origin, std::deque<Node>& nodes)
      : bytes_(bytes), origin_(origin), nodes_(nodes) {}

  // Reads all opcodes. Returns the node of what has been pickled. Throws UserError.
  uint32_t read();

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_user("{}, byte {}: {}", origin_, opcode_at_,
              fmt::format(format, std::forward<Args>(args)...));
  }

  // Reads an opcode's argument of so many bytes.
  std::string_view take(uint64_t bytes, std::string_view what);
  uint64_t number(int bytes);  // the lowest byte first
  std::string_view line();

  uint32_t make(PickleKind kind);
  void push(uint32_t node) { stack_.push_back(node); }
  void push_number(PickleKind kind, int64_t number);
  void push_long(uint64_t bytes);
  void push_text(PickleKind kind, uint64_t bytes);
  void push_items(PickleKind kind, size_t begin);  // the values on the stack from `begin` on
  // Returns how many of the values on the stack are below the collection that has begun last, and so not its own.
  size_t below() const { return marks_.empty() ? 0 : marks_.back(); }
  void require(size_t values) const;  // throws UserError if the stack has fewer of that collection
  uint32_t pop();
  uint32_t top() const;
  // Returns the value that those from `begin` on are added to.
  Node& collection_before(size_t begin);
  size_t pop_mark();  // returns where the values above the mark begin

  bool read_constant(uint8_t opcode);
  bool read_collection(uint8_t opcode);
  bool read_memo(uint8_t opcode);
  bool read_call(uint8_t opcode);
  void begin_protocol();
  void append(size_t begin);
  void set_items(size_t begin);
  void put(uint64_t index);
  void get(uint64_t index);
  void call(uint32_t callable, uint32_t arguments);
  void name(std::string_view module, std::string_view name);
  void build();

  std::string_view bytes_;
  const std::string& origin_;
  std::deque<Node>& nodes_;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;   // how many values were on the stack
  std::vector<uint32_t> memo_;  // nodes; kNotPut: none
  size_t next_ = 0;             // byte
  size_t opcode_at_ = 0;
  bool ended_ = false;
};

}  // namespace dstrain
