// A checker of XML's form, for the pictures and pages of reports: elements that end, values in quotes, no character that
// should have been escaped.
#pragma once

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/text.h"

namespace dstrain::test {

class XmlCheck {
 public:
  explicit XmlCheck(std::string_view text) : text_(text) {}

  // Returns what is wrong first, with some of the text there; empty if nothing is.
  std::string problem() {
    if (first_invalid_utf8(text_) != std::string_view::npos) return "no UTF-8";
    while (at_ < text_.size() && problem_.empty()) {
      if (text_[at_] == '<')
        take_tag();
      else
        take_character();
    }
    if (problem_.empty() && !open_.empty()) fail("not ended: " + open_.back());
    if (problem_.empty() && roots_ != 1) fail("not one root");
    return problem_;
  }

 private:
  void fail(const std::string& what) {
    if (problem_.empty())
      problem_ = what + " at: " + std::string(text_.substr(at_ > 20 ? at_ - 20 : 0, 60));
  }
  bool skip(std::string_view part) {
    if (!text_.substr(at_).starts_with(part)) return false;
    at_ += part.size();
    return true;
  }
  void blanks() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  std::string name() {
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 ||
                                  text_[at_] == '-' || text_[at_] == ':' || text_[at_] == '_'))
      ++at_;
    if (at_ == begin) fail("a name is missing");
    return std::string(text_.substr(begin, at_ - begin));
  }
  // A character of a text or a value.
  void take_character() {
    const auto byte = static_cast<unsigned char>(text_[at_]);
    if (byte < 0x20 && byte != '\n' && byte != '\t' && byte != '\r')
      return fail("control character");
    if (text_[at_] == '&') {
      for (const std::string_view entity : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"})
        if (skip(entity)) return;
      return fail("'&' alone");
    }
    if (open_.empty() && std::isspace(byte) == 0) return fail("text outside of the root");
    ++at_;
  }
  void take_value() {
    if (!skip("\"")) return fail("a value without quotes");
    while (at_ < text_.size() && text_[at_] != '"' && problem_.empty()) {
      if (text_[at_] == '<') return fail("'<' in a value");
      const bool inside = !open_.empty();
      if (!inside) open_.emplace_back();  // a value of the root is no text outside of it
      take_character();
      if (!inside) open_.pop_back();
    }
    if (!skip("\"")) fail("a value without end");
  }
  void take_tag() {
    if (skip("</")) {
      const std::string ended = name();
      if (open_.empty() || open_.back() != ended) return fail("</" + ended + "> out of place");
      open_.pop_back();
      if (!skip(">")) fail("'>' is missing");
      return;
    }
    skip("<");
    const std::string begun = name();
    std::vector<std::string> attributes;
    for (blanks(); at_ < text_.size() && problem_.empty(); blanks()) {
      if (skip("/>")) {
        roots_ += open_.empty() ? 1 : 0;
        return;
      }
      if (skip(">")) {
        roots_ += open_.empty() ? 1 : 0;
        open_.push_back(begun);
        return;
      }
      const std::string attribute = name();
      for (const std::string& other : attributes)
        if (other == attribute) return fail("twice: " + attribute);
      attributes.push_back(attribute);
      if (!skip("=")) return fail("'=' is missing");
      take_value();
    }
    fail("a tag without end");
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<std::string> open_;
  int roots_ = 0;
  std::string problem_;
};

inline std::string xml_problem(std::string_view text) {
  return XmlCheck(text).problem();
}

}  // namespace dstrain::test
