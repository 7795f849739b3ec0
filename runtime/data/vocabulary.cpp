#include "runtime/data/vocabulary.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/data/file/data_file.h"
#include "runtime/data/utf8.h"

namespace dstrain {
namespace {

using nlohmann::json;

constexpr uint32_t kReplacement = 0xfffd;

constexpr std::string_view format_name(DataFormat format) {
  switch (format) {
    case DataFormat::characters:
      return "char";
    case DataFormat::bytes:
      return "byte";
    case DataFormat::tokens:
      return "bin";
    case DataFormat::automatic:
    case DataFormat::arrays:
    case DataFormat::images:
      break;
  }
  return "none";
}

std::string text_of(uint32_t code) {
  std::string text;
  append_utf8(text, code);
  return text;
}

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

// Reads and checks the list of characters in vocab.json.
std::vector<uint32_t> read_characters(const json& list, const std::string& source) {
  std::vector<uint32_t> characters;
  for (const json& item : list) {
    const auto& text = item.get_ref<const std::string&>();
    const auto size = static_cast<int64_t>(text.size());
    const utf8::Character c = text.empty() ? utf8::Character{} : utf8::decode(bytes_of(text), size);
    if (c.bytes == 0 || c.bytes != size)
      fail_user("{}: item {} of \"characters\" is {} bytes, expected one character", source,
                characters.size(), size);
    if (!characters.empty() && c.code <= characters.back())
      fail_user("{}: item {} of \"characters\", {}, is out of order", source, characters.size(),
                character_text(c.code));
    characters.push_back(c.code);
  }
  return characters;
}

}  // namespace

std::string character_text(uint32_t code) {
  const bool visible = code > 0x20 && code != 0x7f && !(code >= 0x80 && code < 0xa0);
  return visible ? fmt::format("\"{}\" (U+{:04X})", text_of(code), code)
                 : fmt::format("U+{:04X}", code);
}

std::vector<int32_t> Vocabulary::encode(std::string_view text) const {
  if (format != DataFormat::characters && format != DataFormat::bytes)
    fail_user("the run was trained on token ids, not on text: give ids with --prompt_ids 1,2,3");
  std::vector<int32_t> ids;
  if (format == DataFormat::bytes) {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  for (size_t at = 0; at < text.size();) {
    const utf8::Character c =
        utf8::decode(bytes_of(text) + at, static_cast<int64_t>(text.size() - at));
    if (c.bytes == 0) fail_user("the text is not UTF-8 at byte {}", at);
    const auto it = std::lower_bound(characters.begin(), characters.end(), c.code);
    if (it == characters.end() || *it != c.code)
      fail_user(
          "character {} of the text, {}, is not among the {} characters that the model was trained "
          "on",
          ids.size() + 1, character_text(c.code), characters.size());
    ids.push_back(static_cast<int32_t>(it - characters.begin()));
    at += static_cast<size_t>(c.bytes);
  }
  return ids;
}

std::string Vocabulary::size_text() const {
  return format == DataFormat::tokens ? fmt::format("ids up to {}", size - 1)
                                      : fmt::format("vocabulary {}", size);
}

std::string Vocabulary::decode(int32_t id) const {
  check(id >= 0, "id {} is negative", id);
  if (format == DataFormat::tokens) return std::to_string(id);
  if (id >= size) return text_of(kReplacement);
  if (format == DataFormat::bytes) return std::string(1, static_cast<char>(id));
  return text_of(characters[static_cast<size_t>(id)]);
}

Vocabulary vocabulary_of_run(const std::string& run) {
  constexpr int64_t most_bytes = int64_t{64} << 20;
  std::error_code none;
  const std::string path = std::filesystem::is_directory(run, none) ? run + "/vocab.json" : run;
  if (!std::filesystem::exists(path, none))
    fail_user(
        "--vocab {}: there is no {}, which every run on text writes: give the output directory of "
        "one",
        printable(run), printable(path));
  const DataFile file(path);
  if (file.bytes() > most_bytes)
    fail_user("{} is no vocabulary that dstrain wrote: it has {} bytes", printable(path),
              file.bytes());
  Vocabulary vocabulary = parse_vocabulary(
      {reinterpret_cast<const char*>(file.data()), static_cast<size_t>(file.bytes())}, path);
  if (vocabulary.format == DataFormat::tokens)
    fail_user("--vocab {}: the run was trained on token ids, which are no text: leave it out",
              printable(run));
  return vocabulary;
}

std::string vocabulary_json(const Vocabulary& vocabulary) {
  nlohmann::ordered_json root;
  root["format"] = format_name(vocabulary.format);
  root["size"] = vocabulary.size;
  if (vocabulary.format == DataFormat::characters) {
    auto& list = root["characters"] = json::array();
    for (const uint32_t code : vocabulary.characters) list.push_back(text_of(code));
  }
  return root.dump() + "\n";
}

bool is_vocabulary(std::string_view text) {
  const json root = json::parse(text, nullptr, false);
  if (!root.is_object()) return false;
  const auto format = root.find("format");
  return format != root.end() && format->is_string();
}

Vocabulary parse_vocabulary(std::string_view text, const std::string& source) try {
  const json root = json::parse(text);
  const std::string format = root.at("format").get<std::string>();
  Vocabulary vocabulary;
  vocabulary.size = root.at("size").get<int64_t>();
  if (format == "char") {
    vocabulary.format = DataFormat::characters;
    vocabulary.characters = read_characters(root.at("characters"), source);
    if (vocabulary.size != static_cast<int64_t>(vocabulary.characters.size()))
      fail_user("{}: \"size\" is {}, and \"characters\" has {}", source, vocabulary.size,
                vocabulary.characters.size());
  } else if (format == "byte" || format == "bin") {
    vocabulary.format = format == "byte" ? DataFormat::bytes : DataFormat::tokens;
    if (vocabulary.size < 1 || (format == "byte" && vocabulary.size != 256))
      fail_user("{}: \"size\" is {}, which does not fit format {}", source, vocabulary.size,
                format);
  } else {
    fail_user("{}: \"format\" is \"{}\", expected char, byte or bin", source, printable(format));
  }
  return vocabulary;
} catch (const json::parse_error& error) {
  fail_user("{} is not a vocabulary that dstrain wrote: it is no JSON at byte {}", source,
            error.byte);
} catch (const json::exception&) {
  fail_user(
      "{} is not a vocabulary that dstrain wrote: expected \"format\", \"size\" and, for char, "
      "\"characters\"",
      source);
}

}  // namespace dstrain
