// AddedTokens: tokens that stand in a text as they are and are not merged from pieces, such as <|endoftext|>. Found as the
// tokenizers library finds them: from the left, the longest first, those that are not normalized before the others.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace dstrain {

// A token of the list added_tokens of a tokenizer.json.
struct AddedToken {
  uint32_t id = 0;
  std::string content;
  bool single_word = false;             // not beside a letter, digit or mark
  bool lstrip = false, rstrip = false;  // with the white space on this side
  bool normalized = false;              // looked for in the normalized text
  bool special = false;
};

// A part of a text: a token, or text between tokens (id kNoToken).
struct TextPart {
  uint32_t id;
  std::string_view text;
};

// The tokens that are looked for at the same time.
class TokenSet {
 public:
  // Looks for `pattern` in the place of `token`'s content. Of equal patterns the first is found.
  void add(const AddedToken& token, std::string_view pattern);

  bool empty() const { return tokens_.empty(); }
  // Appends the parts of `text`, valid UTF-8, in order.
  void divide(std::string_view text, std::vector<TextPart>& parts) const;
  // Returns whether one of the patterns stands in `text` so that it touches `offset`: begins, ends or goes on there.
  bool touches(std::string_view text, size_t offset) const;
  size_t longest() const { return longest_; }  // bytes of the longest pattern

 private:
  struct Node {
    std::map<unsigned char, uint32_t> next;
    int32_t token = -1;  // index in tokens_ of the pattern that ends here
  };

  // Returns the bytes of the longest pattern at `at`, 0 if there is none, and sets `token` to its index.
  size_t match(std::string_view text, size_t at, int32_t& token) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_{1};
  std::array<bool, 256> first_bytes_{};
  size_t longest_ = 0;
};

}  // namespace dstrain
