#include "runtime/core/formats/pickle/unpickler.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "runtime/core/formats/pickle/opcodes.h"

namespace dstrain {
namespace {

using namespace opcode;

constexpr uint32_t kNotPut = std::numeric_limits<uint32_t>::max();
constexpr uint64_t kOldestProtocol = 2, kNewestProtocol = 5;

}  // namespace

uint32_t Unpickler::read() {
  begin_protocol();
  while (!ended_) {
    opcode_at_ = next_;
    const auto opcode = static_cast<uint8_t>(take(1, "an opcode").front());
    if (!read_constant(opcode) && !read_collection(opcode) && !read_memo(opcode) &&
        !read_call(opcode))
      fail(
          "the opcode {:#04x} is none of the protocols 2 to 5, or one for objects outside of the "
          "pickle",
          opcode);
  }
  if (!marks_.empty()) fail("it ends within a collection");
  if (stack_.size() != 1) fail("it ends with {} values, expected one", stack_.size());
  if (next_ != bytes_.size()) fail("{} bytes follow its end", bytes_.size() - next_);
  return stack_.front();
}

void Unpickler::begin_protocol() {
  if (take(1, "the protocol").front() != static_cast<char>(op_proto))
    fail("it does not begin as a pickle of protocol 2 or later does");
  const uint64_t protocol = number(1);
  if (protocol < kOldestProtocol || protocol > kNewestProtocol)
    fail("its protocol is {}, expected {} to {}", protocol, kOldestProtocol, kNewestProtocol);
}

std::string_view Unpickler::take(uint64_t bytes, std::string_view what) {
  const size_t left = bytes_.size() - next_;
  if (bytes > left) fail("it ends within {}, which has {} bytes: {} are left", what, bytes, left);
  const std::string_view taken = bytes_.substr(next_, bytes);
  next_ += bytes;
  return taken;
}

uint64_t Unpickler::number(int bytes) {
  const std::string_view digits = take(static_cast<uint64_t>(bytes), "a number");
  uint64_t value = 0;
  for (size_t i = digits.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(digits[i]);
  return value;
}

std::string_view Unpickler::line() {
  const size_t end = bytes_.find('\n', next_);
  if (end == std::string_view::npos) fail("it ends within a name");
  const std::string_view text = bytes_.substr(next_, end - next_);
  next_ = end + 1;
  return text;
}

uint32_t Unpickler::make(PickleKind kind) {
  Node& node = nodes_.emplace_back();
  node.kind = kind;
  node.at = static_cast<uint32_t>(opcode_at_);
  return static_cast<uint32_t>(nodes_.size() - 1);
}

void Unpickler::push_number(PickleKind kind, int64_t number) {
  const uint32_t node = make(kind);
  nodes_[node].number = number;
  push(node);
}

void Unpickler::push_long(uint64_t bytes) {
  const std::string_view digits = take(bytes, "an integer");
  if (digits.size() > sizeof(int64_t)) return push(make(PickleKind::large_integer));
  const bool negative = !digits.empty() && (static_cast<uint8_t>(digits.back()) & 0x80) != 0;
  uint64_t value = negative ? std::numeric_limits<uint64_t>::max() : 0;
  for (size_t i = digits.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(digits[i]);
  push_number(PickleKind::integer, static_cast<int64_t>(value));
}

void Unpickler::push_text(PickleKind kind, uint64_t bytes) {
  const std::string_view text = take(bytes, kind == PickleKind::text ? "a text" : "bytes");
  const uint32_t node = make(kind);
  nodes_[node].text = text;
  push(node);
}

void Unpickler::push_items(PickleKind kind, size_t begin) {
  if (kind == PickleKind::dict && (stack_.size() - begin) % 2 != 0) fail("a key has no value");
  const uint32_t node = make(kind);
  nodes_[node].items.assign(stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end());
  stack_.resize(begin);
  push(node);
}

void Unpickler::require(size_t values) const {
  if (stack_.size() < below() + values) fail("it takes a value that is not there");
}

uint32_t Unpickler::top() const {
  require(1);
  return stack_.back();
}

Unpickler::Node& Unpickler::collection_before(size_t begin) {
  if (begin <= below()) fail("it adds to a value that is not there");
  return nodes_[stack_[begin - 1]];
}

uint32_t Unpickler::pop() {
  const uint32_t node = top();
  stack_.pop_back();
  return node;
}

size_t Unpickler::pop_mark() {
  if (marks_.empty()) fail("a collection ends that has not begun");
  const size_t begin = marks_.back();
  marks_.pop_back();
  return begin;
}

bool Unpickler::read_constant(uint8_t opcode) {
  switch (opcode) {
    case op_none:
      push(0);
      return true;
    case op_newtrue:
    case op_newfalse:
      push_number(PickleKind::boolean, opcode == op_newtrue ? 1 : 0);
      return true;
    case op_binint:
      push_number(PickleKind::integer, static_cast<int32_t>(number(4)));
      return true;
    case op_binint1:
    case op_binint2:
      push_number(PickleKind::integer, static_cast<int64_t>(number(opcode == op_binint1 ? 1 : 2)));
      return true;
    case op_long1:
    case op_long4: {
      const uint64_t bytes = number(opcode == op_long1 ? 1 : 4);
      if (bytes > static_cast<uint64_t>(std::numeric_limits<int32_t>::max()))
        fail("an integer has {} bytes", static_cast<int32_t>(bytes));
      push_long(bytes);
      return true;
    }
    case op_binfloat: {
      uint64_t bits = 0;  // the highest byte first
      for (const char c : take(8, "a real number")) bits = bits << 8 | static_cast<uint8_t>(c);
      push_number(PickleKind::real, static_cast<int64_t>(bits));
      return true;
    }
    case op_binunicode:
    case op_short_binunicode:
    case op_binunicode8:
      push_text(PickleKind::text, number(opcode == op_binunicode         ? 4
                                         : opcode == op_short_binunicode ? 1
                                                                         : 8));
      return true;
    case op_binstring:  // of Python 2: a text
    case op_short_binstring:
      push_text(PickleKind::text, number(opcode == op_binstring ? 4 : 1));
      return true;
    case op_binbytes:
    case op_short_binbytes:
    case op_binbytes8:
    case op_bytearray8:
      push_text(PickleKind::bytes, number(opcode == op_binbytes         ? 4
                                          : opcode == op_short_binbytes ? 1
                                                                        : 8));
      return true;
    default:
      return false;
  }
}

bool Unpickler::read_collection(uint8_t opcode) {
  switch (opcode) {
    case op_mark:
      marks_.push_back(stack_.size());
      return true;
    case op_pop_mark:
      stack_.resize(pop_mark());
      return true;
    case op_empty_list:
      push(make(PickleKind::list));
      return true;
    case op_empty_tuple:
      push(make(PickleKind::tuple));
      return true;
    case op_empty_dict:
      push(make(PickleKind::dict));
      return true;
    case op_empty_set:
      push(make(PickleKind::set));
      return true;
    case op_list:
      push_items(PickleKind::list, pop_mark());
      return true;
    case op_tuple:
      push_items(PickleKind::tuple, pop_mark());
      return true;
    case op_dict:
      push_items(PickleKind::dict, pop_mark());
      return true;
    case op_frozenset:
      push_items(PickleKind::set, pop_mark());
      return true;
    case op_tuple1:
    case op_tuple2:
    case op_tuple3: {
      const size_t count = opcode - op_tuple1 + 1;
      require(count);
      push_items(PickleKind::tuple, stack_.size() - count);
      return true;
    }
    case op_append:
      top();
      append(stack_.size() - 1);
      return true;
    case op_appends:
    case op_additems:
      append(pop_mark());
      return true;
    case op_setitem:
      require(2);
      set_items(stack_.size() - 2);
      return true;
    case op_setitems:
      set_items(pop_mark());
      return true;
    default:
      return false;
  }
}

// Adds the values from `begin` on to the one below them. What an object of a foreign class would do with them is not known.
void Unpickler::append(size_t begin) {
  Node& to = collection_before(begin);
  if (to.kind == PickleKind::list || to.kind == PickleKind::set)
    to.items.insert(to.items.end(), stack_.begin() + static_cast<std::ptrdiff_t>(begin),
                    stack_.end());
  else if (to.kind != PickleKind::object)
    fail("it adds elements to {}", name_of(to.kind));
  stack_.resize(begin);
}

void Unpickler::set_items(size_t begin) {
  Node& to = collection_before(begin);
  if ((stack_.size() - begin) % 2 != 0) fail("a key has no value");
  if (to.kind != PickleKind::dict && to.kind != PickleKind::object)
    fail("it adds keys to {}", name_of(to.kind));
  to.items.insert(to.items.end(), stack_.begin() + static_cast<std::ptrdiff_t>(begin),
                  stack_.end());
  stack_.resize(begin);
}

bool Unpickler::read_memo(uint8_t opcode) {
  switch (opcode) {
    case op_pop:
      if (!marks_.empty() && marks_.back() == stack_.size())
        marks_.pop_back();
      else
        pop();
      return true;
    case op_dup:
      push(top());
      return true;
    case op_binput:
    case op_long_binput:
      put(number(opcode == op_binput ? 1 : 4));
      return true;
    case op_memoize:
      put(memo_.size());
      return true;
    case op_binget:
    case op_long_binget:
      get(number(opcode == op_binget ? 1 : 4));
      return true;
    case op_frame: {
      const uint64_t bytes = number(8);
      if (bytes > bytes_.size() - next_)
        fail("a frame of {} bytes reaches over the end, {} bytes from here", bytes,
             bytes_.size() - next_);
      return true;
    }
    case op_stop:
      ended_ = true;
      return true;
    default:
      return false;
  }
}

// Places are numbered from 0 on in the order of writing, so that none is larger than its byte.
void Unpickler::put(uint64_t index) {
  const uint32_t node = top();
  if (index > opcode_at_)
    fail("it keeps a value at the place {}, and has kept {}", index, memo_.size());
  if (index >= memo_.size()) memo_.resize(index + 1, kNotPut);
  memo_[index] = node;
}

void Unpickler::get(uint64_t index) {
  if (index >= memo_.size() || memo_[index] == kNotPut)
    fail("it takes the value at the place {}, where it has kept none", index);
  push(memo_[index]);
}

bool Unpickler::read_call(uint8_t opcode) {
  switch (opcode) {
    case op_global: {
      const std::string_view module = line();
      name(module, line());
      return true;
    }
    case op_stack_global: {
      const uint32_t second = pop(), first = pop();
      if (nodes_[first].kind != PickleKind::text || nodes_[second].kind != PickleKind::text)
        fail("a name of Python's is no text");
      name(nodes_[first].text, nodes_[second].text);
      return true;
    }
    case op_reduce:
    case op_newobj: {
      const uint32_t arguments = pop();
      call(pop(), arguments);
      return true;
    }
    case op_newobj_ex: {
      pop();  // arguments by name
      const uint32_t arguments = pop();
      call(pop(), arguments);
      return true;
    }
    case op_build:
      build();
      return true;
    case op_binpersid: {
      const uint32_t identity = pop(), node = make(PickleKind::persistent);
      nodes_[node].arguments = identity;
      push(node);
      return true;
    }
    default:
      return false;
  }
}

void Unpickler::name(std::string_view module, std::string_view name) {
  const uint32_t node = make(PickleKind::global);
  nodes_[node].module = module;
  nodes_[node].text = name;
  push(node);
}

void Unpickler::call(uint32_t callable, uint32_t arguments) {
  if (nodes_[arguments].kind != PickleKind::tuple)
    fail("the arguments of a call are {}, expected a tuple", name_of(nodes_[arguments].kind));
  const uint32_t node = make(PickleKind::object);
  Node& made = nodes_[node];
  const Node &called = nodes_[callable], &given = nodes_[arguments];
  made.arguments = arguments;
  made.module = called.module;
  made.text = called.text;
  push(node);
  if (called.kind != PickleKind::global) return;
  // Collections of which only the elements matter.
  const bool is_dict =
      called.text == "defaultdict" || (called.text == "OrderedDict" && given.items.empty());
  if (called.module == "collections" && is_dict)
    made.kind = PickleKind::dict;
  else if (called.module == "torch" && called.text == "Size" && given.items.size() == 1 &&
           nodes_[given.items[0]].kind == PickleKind::tuple)
    stack_.back() = given.items[0];
}

// Gives an object its attributes.
void Unpickler::build() {
  const uint32_t state = pop();
  Node& node = nodes_[top()];
  if (node.kind != PickleKind::object && node.kind != PickleKind::dict)
    fail("it gives attributes to {}", name_of(node.kind));
  node.state = state;
}

}  // namespace dstrain
