// Pickle: the values of a Python pickle, of protocols 2 to 5, without Python. Nothing is looked up or called: a class or a
// function is its name, and what Python would make by calling one is a value that has the name, the arguments and the state
// as they are written. Files may be hostile: memory grows with the bytes of the pickle, never with what it states, and values
// may refer to each other in circles, so that whoever walks them must bound the depth. Errors are UserErrors that name the
// pickle and the byte.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/core/error.h"

namespace dstrain {

enum class PickleKind : uint8_t {
  none,
  boolean,
  integer,
  large_integer,  // of more than 64 bits
  real,
  text,
  bytes,
  list,
  tuple,
  set,
  dict,        // an OrderedDict, too
  global,      // the name of a class or a function
  persistent,  // what the writer keeps elsewhere, by its identity
  object,      // what Python would make by a call
};

// Returns "a list", "an integer", ...
std::string_view name_of(PickleKind kind);

class Pickle;

// A value of a pickle, which must outlive it.
class PickleValue {
 public:
  PickleKind kind() const;
  bool is(PickleKind kind) const { return this->kind() == kind; }
  // Returns the byte of the pickle that has begun the value.
  int64_t at() const;

  // Return the value of an integer or a boolean, of a real, and of a text or bytes. The caller must have asked for the kind.
  int64_t integer() const;
  double real() const;
  std::string_view text() const;

  // Returns whether a global, or what an object's call would call, is `name`, "MODULE.NAME".
  bool is_named(std::string_view name) const;
  // Returns that name for a message.
  std::string shown_name() const;

  // The elements of a list, a tuple or a set; none of another kind.
  size_t size() const;
  PickleValue operator[](size_t index) const;
  // The pairs of a dict, or of an object that was given some, in the order of the pickle; none of another kind. Keys may
  // repeat: Python keeps the last.
  size_t pairs() const;
  PickleValue key(size_t pair) const;
  PickleValue value(size_t pair) const;
  // Returns the value of a key that is this text; nothing if there is none.
  std::optional<PickleValue> find(std::string_view wanted) const;

  // The arguments of an object's call, a tuple, and the identity of a persistent value.
  PickleValue arguments() const;
  // What an object or a dict has been given as its attributes; a value of kind none where there are none.
  PickleValue state() const;

  // Throws UserError with the place of the value.
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_with(fmt::format(format, std::forward<Args>(args)...));
  }

  friend bool operator==(const PickleValue&, const PickleValue&) = default;

 private:
  friend class Pickle;
  PickleValue(const Pickle* pickle, uint32_t node) : pickle_(pickle), node_(node) {}
  [[noreturn]] void fail_with(const std::string& problem) const;

  const Pickle* pickle_;
  uint32_t node_;
};

class Pickle {
 public:
  // What a value is made of.
  struct Node {
    PickleKind kind = PickleKind::none;
    uint32_t at = 0;
    uint32_t arguments = 0, state = 0;  // nodes; 0: none
    int64_t number = 0;                 // the bits of a real
    std::string_view text, module;      // of a global and an object: its name and its module's
    std::vector<uint32_t> items;        // the elements, or keys and values in turn
  };

  // Reads the pickle `bytes`. `origin` names it in messages ("model.bin: archive/data.pkl"). Throws UserError.
  Pickle(std::string bytes, std::string origin);
  Pickle(const Pickle&) = delete;
  Pickle& operator=(const Pickle&) = delete;

  // Returns the value that has been pickled.
  PickleValue root() const { return {this, root_}; }
  const std::string& origin() const { return origin_; }

 private:
  friend class PickleValue;
  std::string bytes_, origin_;
  std::deque<Node> nodes_;  // the first one is None
  uint32_t root_ = 0;
};

// The most bytes that a pickle may have.
inline constexpr int64_t kLargestPickle = int64_t{1} << 25;

}  // namespace dstrain
