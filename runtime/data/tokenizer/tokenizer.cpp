#include "runtime/data/tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <unordered_set>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/data/tokenizer/bpe/byte_letters.h"
#include "runtime/data/tokenizer/unicode/classes.h"
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

BytePairs byte_pairs_of(const TokenizerModel& model) {
  TokenIds whole;
  if (model.ignore_merges)
    for (const auto& [token, id] : model.vocabulary)
      if (const auto bytes = bytes_of_letters(token)) whole.emplace(*bytes, id);
  return BytePairs(byte_ids_of(model), model.merges, std::move(whole));
}

std::variant<BytePairs, CharacterPairs> pairs_of(const TokenizerSpec& spec) {
  if (spec.byte_level) return byte_pairs_of(spec.model);
  return CharacterPairs(spec.model.vocabulary, spec.model.merges, spec.model.unknown,
                        spec.model.ignore_merges);
}

// Refuses byte-level BPE that would put something in the place of a byte without a token.
void check_bytes(TokenizerSpec& spec, const std::string& source) {
  const auto byte_ids = byte_ids_of(spec.model);
  const auto missing = std::ranges::count(byte_ids, kNoToken);
  if (missing == 0) return;
  if (spec.model.replaces_unknown())
    fail_user(
        "{}: model.vocab: {} of the 256 bytes have no token, and unk_token or byte_fallback "
        "would take their "
        "place, which is not available",
        source, missing);
  spec.warnings.push_back(
      fmt::format("{}: model.vocab: {} of the 256 bytes have no token, and are left out of texts",
                  source, missing));
}

void check_characters(TokenizerSpec& spec, const CharacterPairs& pairs, const std::string& source) {
  if (pairs.knows_all()) return;
  if (!spec.model.unk_token.empty())
    fail_user("{}: model.unk_token: the vocabulary has no token \"{}\"", source,
              spec.model.unk_token);
  spec.warnings.push_back(fmt::format(
      "{}: model.vocab: characters that are no token, and whose bytes have none (byte_fallback), "
      "are left out of texts, as there is no unk_token",
      source));
}

// Returns whether steps of a normalizer leave a text's parts what they are by themselves.
bool keeps_parts(const std::vector<NormalizerStep>& steps) {
  return std::ranges::all_of(
      steps, [](const NormalizerStep& step) { return std::holds_alternative<NormalizeNfc>(step); });
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

bool puts_space_in_front(const TokenizerSpec& spec) {
  const auto prepends = [](const NormalizerStep& step) {
    return std::holds_alternative<NormalizePrepend>(step);
  };
  return std::ranges::any_of(spec.normalizer, prepends) ||
         std::ranges::any_of(spec.marks_at_begin, prepends) ||
         std::ranges::any_of(spec.stages, [](const SplitStage& stage) {
           return stage.kind == SplitStage::Kind::space;
         });
}

}  // namespace

Tokenizer::Tokenizer(std::string_view json, const std::string& source)
    : Tokenizer(read_tokenizer_json(json, source), source) {}

Tokenizer::Tokenizer(TokenizerSpec spec, const std::string& source)
    : normalizer_(spec.normalizer),
      marks_at_begin_(spec.marks_at_begin),
      marks_elsewhere_(spec.marks_elsewhere),
      cuttable_(spec.byte_level && keeps_parts(spec.normalizer) && spec.marks_elsewhere.empty()),
      splitter_(spec.stages),
      pairs_(pairs_of(spec)),
      space_in_front_(puts_space_in_front(spec)),
      strip_(spec.decoder.strip),
      strips_(spec.decoder.strips),
      prefix_(spec.prefix),
      suffix_(spec.suffix) {
  if (const auto* const characters = std::get_if<CharacterPairs>(&pairs_))
    check_characters(spec, *characters, source);
  else
    check_bytes(spec, source);
  warnings_ = spec.warnings;
  // Of equal contents special tokens are found first.
  std::stable_partition(spec.added.begin(), spec.added.end(),
                        [](const AddedToken& token) { return token.special; });
  for (const AddedToken& token : spec.added) {
    if (token.normalized)
      in_normalized_.add(token, normalizer_.applied(token.content));
    else
      raw_.add(token, token.content);
  }
  read_tokens(spec, source);
}

// Returns the bytes that a token is decoded to, and notes whether it is one of byte fallback.
std::string Tokenizer::decoded(const std::string& token, uint32_t id, const DecoderSpec& decoder) {
  if (decoder.byte_level) return decoded_bytes(token);
  std::string text = token;
  for (const NormalizeReplace& replacement : decoder.replacements)
    text = Normalizer({replacement}).applied(text);
  const int byte = decoder.byte_fallback ? byte_of_token(text) : -1;
  fallback_bytes_[id] = byte >= 0;
  return byte >= 0 ? std::string(1, static_cast<char>(byte)) : text;
}

void Tokenizer::read_tokens(const TokenizerSpec& spec, const std::string& source) {
  uint32_t largest = 0;
  for (const auto& [token, id] : spec.model.vocabulary) largest = std::max(largest, id);
  for (const AddedToken& token : spec.added) largest = std::max(largest, token.id);
  decoded_.resize(largest + 1);
  special_.resize(largest + 1);
  skipped_.resize(largest + 1);
  fallback_bytes_.resize(largest + 1);
  ids_ = spec.model.vocabulary;
  for (const auto& [token, id] : spec.model.vocabulary)
    decoded_[id] = decoded(token, id, spec.decoder);
  std::unordered_set<std::string> specials;
  for (const AddedToken& token : spec.added)
    if (token.special) specials.insert(token.content);
  for (const AddedToken& token : spec.added) {
    ids_[token.content] = token.id;
    const std::string text = token.normalized ? normalizer_.applied(token.content) : token.content;
    decoded_[token.id] = decoded(text, token.id, spec.decoder);
    special_[token.id] = token.special;
    skipped_[token.id] = specials.contains(text);
  }
  for (const std::vector<uint32_t>* ids : {&prefix_, &suffix_})
    for (const uint32_t id : *ids)
      if (id > largest || decoded_[id].empty())
        fail_user("{}: post_processor: no token has the id {}", source, id);
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

int64_t Tokenizer::bytes_of_first(uint32_t id) const {
  const std::string_view bytes = bytes_of(id);
  return std::ssize(bytes) - (space_in_front_ && bytes.starts_with(' ') ? 1 : 0);
}

bool Tokenizer::may_cut(std::string_view text, int64_t where) const {
  const auto at = static_cast<size_t>(where);
  if (!cuttable_ || at == 0 || at >= text.size()) return false;
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
  const std::string before = normalizer_.applied(lossy(text.substr(begin, at - begin)));
  return !in_normalized_.touches(before + normalizer_.applied(lossy(text.substr(at, reach))),
                                 before.size());
}

void TextEncoder::encode(std::string_view bytes, std::vector<uint32_t>& ids,
                         unicode::Invalid& invalid) {
  std::string scratch;
  const std::string_view text = unicode::lossy_utf8(bytes, scratch, invalid);
  std::vector<TextPart> parts;
  tokenizer_.raw_.divide(text, parts);
  for (const TextPart& part : parts) {
    if (part.id != kNoToken) {
      ids.push_back(part.id);
      continue;
    }
    std::string changed;
    encode_normalized(tokenizer_.normalizer_.apply(part.text, changed),
                      part.text.data() == text.data(), ids, nullptr);
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
  std::visit([&](const auto& pairs) { pairs.encode(piece, scratch_, ids); }, tokenizer_.pairs_);
  cache_.put(piece, std::span(ids).subspan(before));
}

}  // namespace dstrain
