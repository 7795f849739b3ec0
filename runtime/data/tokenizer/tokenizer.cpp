#include "runtime/data/tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/data/tokenizer/bpe/byte_letters.h"
#include "runtime/data/tokenizer/unicode/classes.h"
#include "runtime/data/tokenizer/unicode/nfc.h"
#include "runtime/data/utf8.h"

namespace dstrain {
namespace {

std::array<uint32_t, 256> byte_ids_of(const TokenizerModel& model) {
  std::array<uint32_t, 256> ids{};
  ids.fill(kNoToken);
  for (const auto& [token, id] : model.vocabulary)
    if (const auto bytes = bytes_of_letters(token); bytes && bytes->size() == 1)
      ids[static_cast<unsigned char>(bytes->front())] = id;
  return ids;
}

BytePairs pairs_of(const TokenizerModel& model) {
  std::unordered_map<std::string, uint32_t> whole;
  if (model.ignore_merges)
    for (const auto& [token, id] : model.vocabulary)
      if (const auto bytes = bytes_of_letters(token)) whole.emplace(*bytes, id);
  return BytePairs(byte_ids_of(model), model.merges, whole);
}

// Returns the character that ends at `end` (above 0) of any bytes; bytes 0: there is none.
utf8::Character last_before(std::string_view text, size_t end) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  size_t at = end - 1;
  while (at > 0 && end - at < 4 && !utf8::starts_character(p[at])) --at;
  const utf8::Character c = utf8::decode(p + at, static_cast<int64_t>(end - at));
  return static_cast<size_t>(c.bytes) == end - at ? c : utf8::Character{};
}

bool is_text(utf8::Character c) {
  return c.bytes > 0 && (unicode::classes()[c.code] & unicode::kSpace) == 0;
}

std::string lossy(std::string_view text) {
  std::string scratch;
  unicode::Invalid invalid;
  return std::string(unicode::lossy_utf8(text, scratch, invalid));
}

}  // namespace

Tokenizer::Tokenizer(std::string_view json, const std::string& source)
    : Tokenizer(read_tokenizer_json(json, source), source) {}

Tokenizer::Tokenizer(TokenizerSpec spec, const std::string& source)
    : nfc_(spec.nfc),
      splitter_(std::move(spec.stages)),
      pairs_(pairs_of(spec.model)),
      prefix_(std::move(spec.prefix)),
      suffix_(std::move(spec.suffix)),
      warnings_(std::move(spec.warnings)) {
  const auto byte_ids = byte_ids_of(spec.model);
  if (const auto missing = std::ranges::count(byte_ids, kNoToken); missing > 0) {
    if (spec.model.needs_all_bytes)
      fail_user(
          "{}: model.vocab: {} of the 256 bytes have no token, and unk_token or byte_fallback "
          "would take their "
          "place, which is not available",
          source, missing);
    warnings_.push_back(
        fmt::format("{}: model.vocab: {} of the 256 bytes have no token, and are left out of texts",
                    source, missing));
  }
  // Of equal contents special tokens are found first.
  std::stable_partition(spec.added.begin(), spec.added.end(),
                        [](const AddedToken& token) { return token.special; });
  for (const AddedToken& token : spec.added) {
    if (token.normalized)
      in_normalized_.add(token, normalized(token.content));
    else
      raw_.add(token, token.content);
  }
  read_tokens(spec, source);
}

void Tokenizer::read_tokens(const TokenizerSpec& spec, const std::string& source) {
  uint32_t largest = 0;
  for (const auto& [token, id] : spec.model.vocabulary) largest = std::max(largest, id);
  for (const AddedToken& token : spec.added) largest = std::max(largest, token.id);
  decoded_.resize(largest + 1);
  special_.resize(largest + 1);
  ids_ = spec.model.vocabulary;
  for (const auto& [token, id] : spec.model.vocabulary) decoded_[id] = decoded_bytes(token);
  for (const AddedToken& token : spec.added) {
    ids_[token.content] = token.id;
    decoded_[token.id] =
        decoded_bytes(token.normalized ? normalized(token.content) : token.content);
    special_[token.id] = token.special;
  }
  for (const std::vector<uint32_t>* ids : {&prefix_, &suffix_})
    for (const uint32_t id : *ids)
      if (id > largest || decoded_[id].empty())
        fail_user("{}: post_processor: no token has the id {}", source, id);
}

std::string Tokenizer::normalized(std::string_view text) const {
  return nfc_ ? unicode::nfc(text) : std::string(text);
}

std::optional<uint32_t> Tokenizer::id_of(const std::string& token) const {
  const auto at = ids_.find(token);
  return at == ids_.end() ? std::nullopt : std::optional(at->second);
}

std::vector<uint32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<uint32_t> ids;
  unicode::Invalid invalid;
  TextEncoder(*this).encode(text, ids, invalid);
  return ids;
}

std::string_view Tokenizer::bytes_of(uint32_t id) const {
  return id < decoded_.size() ? std::string_view(decoded_[id]) : std::string_view();
}

std::string Tokenizer::decode(std::span<const uint32_t> ids, bool skip_special) const {
  std::string bytes;
  for (const uint32_t id : ids)
    if (!skip_special || !is_special(id)) bytes += bytes_of(id);
  return lossy(bytes);
}

bool Tokenizer::may_cut(std::string_view text, int64_t where) const {
  const auto at = static_cast<size_t>(where);
  if (at == 0 || at >= text.size()) return false;
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const bool at_space =
      splitter_.cuts_at_spaces() && text[at] == ' ' && is_text(last_before(text, at));
  const bool at_newline = splitter_.cuts_at_newlines() && text[at - 1] == '\n' &&
                          is_text(utf8::decode(p + at, static_cast<int64_t>(text.size() - at)));
  if (!at_space && !at_newline) return false;
  // No added token may be there, nor what would be one after normalization, which makes text at most four times as
  // short.
  const size_t reach = 4 * std::max(raw_.longest(), in_normalized_.longest()) + 4;
  const size_t begin = at > reach ? at - reach : 0;
  const std::string_view around = text.substr(begin, at - begin + reach);
  if (raw_.touches(around, at - begin)) return false;
  if (in_normalized_.empty()) return true;
  const std::string before = normalized(lossy(text.substr(begin, at - begin)));
  return !in_normalized_.touches(before + normalized(lossy(text.substr(at, reach))), before.size());
}

void TextEncoder::encode(std::string_view bytes, std::vector<uint32_t>& ids,
                         unicode::Invalid& invalid) {
  std::string scratch;
  const std::string_view text = unicode::lossy_utf8(bytes, scratch, invalid);
  std::vector<TextPart> parts;
  tokenizer_.raw_.divide(text, parts);
  for (const TextPart& part : parts) {
    if (part.id != kNoToken)
      ids.push_back(part.id);
    else if (!tokenizer_.nfc_ || unicode::surely_nfc(part.text))
      encode_normalized(part.text, ids, nullptr);
    else
      encode_normalized(unicode::nfc(part.text), ids, nullptr);
  }
}

void TextEncoder::encode_normalized(std::string_view text, std::vector<uint32_t>& ids,
                                    std::vector<TokenSpan>* spans) {
  const auto encode_text = [&](std::string_view part, size_t offset) {
    const size_t before = ids.size();
    tokenizer_.splitter_.split(part, [&](std::string_view piece) { encode_piece(piece, ids); });
    if (spans) add_spans(part, offset, std::span(ids).subspan(before), *spans);
  };
  if (tokenizer_.in_normalized_.empty()) return encode_text(text, 0);
  std::vector<TextPart> parts;
  tokenizer_.in_normalized_.divide(text, parts);
  for (const TextPart& part : parts) {
    const auto offset = static_cast<size_t>(part.text.data() - text.data());
    if (part.id == kNoToken) {
      encode_text(part.text, offset);
      continue;
    }
    ids.push_back(part.id);
    if (spans) spans->push_back({offset, offset + part.text.size()});
  }
}

void TextEncoder::encode_piece(std::string_view piece, std::vector<uint32_t>& ids) {
  bool known = false;
  const auto kept = cache_.find(piece, known);
  if (known) {
    ids.insert(ids.end(), kept.begin(), kept.end());
    return;
  }
  const size_t before = ids.size();
  tokenizer_.pairs_.encode(piece, scratch_, ids);
  cache_.put(piece, std::span(ids).subspan(before));
}

}  // namespace dstrain
