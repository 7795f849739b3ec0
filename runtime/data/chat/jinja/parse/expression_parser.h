// The expressions of a template, by Jinja's grammar.
#pragma once

#include "runtime/data/chat/jinja/parse/token_stream.h"
#include "runtime/data/chat/jinja/syntax.h"

namespace dstrain::jinja {

// Each parses what begins at the next token, and throws UserError if nothing does.

// a if b else c
ExpressionPointer parse_expression(TokenStream& tokens);
// a or b: an expression without a condition behind it.
ExpressionPointer parse_unconditional(TokenStream& tokens);
// An expression, or a tuple of several with commas; `unconditional`: without conditions.
ExpressionPointer parse_tuple(TokenStream& tokens, bool unconditional = false);
// Filters behind `subject`, of which the first has no '|' in front.
ExpressionPointer parse_filters(TokenStream& tokens, ExpressionPointer subject);

}  // namespace dstrain::jinja
