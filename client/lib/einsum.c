/* Equations of einsum: from letters to the labels of a contraction. Label 0 to 51 are the letters A … Z a … z, in the order in which an
 * implicit result has them; the last ones are the axes of "...", the last axis with the last label. */
#include <string.h>

#include "client/lib/call.h"
#include "client/lib/contract.h"
#include "client/lib/tensor.h"

enum { LETTERS = 52, ALPHABET = 26 };
_Static_assert(LETTERS + TD_RANK_MAX <= CONTRACT_LABELS, "labels for the axes of an ellipsis");

/* One operand's part of an equation, or the result's. */
struct subscripts {
    int n;
    uint8_t letters[TD_RANK_MAX];
    int dots; /* the number of letters before "..."; -1: there is none */
};

struct equation {
    const char *text; /* all of it, for failures */
    const char *at;
    int dotted; /* the most axes that "..." stands for in an operand */
    uint8_t times[LETTERS];
};

static bool refuse_equation(const struct equation *e, const char *what) {
    call_refuse_function("einsum", STATUS_INVALID_ARGUMENT, "\"%.80s\" %s", e->text, what);
    return false;
}

static void skip_spaces(struct equation *e) {
    while (*e->at == ' ')
        e->at++;
}

static int letter_of(char c) {
    return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + ALPHABET : -1;
}

static char letter_text(int letter) {
    return (char)(letter < ALPHABET ? 'A' + letter : 'a' + (letter - ALPHABET));
}

/* Letters and "..." up to a comma, an arrow or the end. */
static bool read_subscripts(struct equation *e, struct subscripts *s) {
    *s = (struct subscripts){.dots = -1};
    for (;; skip_spaces(e)) {
        skip_spaces(e);
        int letter = letter_of(*e->at);
        if (letter >= 0) {
            if (s->n == TD_RANK_MAX)
                return refuse_equation(e, "has more letters in one place than a tensor has axes");
            s->letters[s->n++] = (uint8_t)letter;
            e->at++;
        } else if (!strncmp(e->at, "...", 3)) {
            if (s->dots >= 0)
                return refuse_equation(e, "has \"...\" twice in one place");
            s->dots = s->n;
            e->at += 3;
        } else if (*e->at == ',' || *e->at == 0 || !strncmp(e->at, "->", 2)) {
            return true;
        } else {
            return refuse_equation(e, "has other characters than letters, \"...\", \",\" and \"->\"");
        }
    }
}

/* The labels of letters, and of `dotted` axes where "..." stands. */
static int spread(const struct subscripts *s, int dotted, uint8_t labels[TD_RANK_MAX]) {
    int rank = 0;
    for (int i = 0; i <= s->n; i++) {
        for (int k = 0; i == s->dots && k < dotted; k++)
            labels[rank++] = (uint8_t)(LETTERS + TD_RANK_MAX - dotted + k);
        if (i < s->n)
            labels[rank++] = s->letters[i];
    }
    return rank;
}

static bool add_operand(struct equation *e, struct contraction *c, td_tensor *x) {
    struct subscripts s;
    uint8_t labels[TD_RANK_MAX];
    char text[SHAPE_TEXT_MAX];
    if (!read_subscripts(e, &s))
        return false;
    int dotted = s.dots < 0 ? 0 : x->type.rank - s.n;
    if (dotted < 0 || s.n + dotted != x->type.rank) {
        call_refuse_function("einsum", STATUS_SHAPE, "\"%.80s\" has %s%d letters for operand %d, which is %s", e->text,
                             s.dots < 0 ? "" : "at least ", s.n, c->n, shape_text(&x->type, text));
        return false;
    }
    e->dotted = dotted > e->dotted ? dotted : e->dotted;
    for (int i = 0; i < s.n; i++)
        if (e->times[s.letters[i]] < 2) /* once or more often: only that counts */
            e->times[s.letters[i]]++;
    spread(&s, dotted, labels);
    return contract_add(c, x, labels);
}

static bool take_result(const struct equation *e, struct contraction *c, const struct subscripts *s) {
    int dotted = s->dots < 0 ? 0 : e->dotted;
    if (s->n + dotted > TD_RANK_MAX) {
        call_refuse_function("einsum", STATUS_SHAPE, "the result of \"%.80s\" has %d axes, %d are possible", e->text,
                             s->n + dotted, TD_RANK_MAX);
        return false;
    }
    c->rank = spread(s, dotted, c->labels);
    return true;
}

static bool read_result(struct equation *e, struct contraction *c) {
    struct subscripts s;
    uint64_t seen = 0;
    e->at += 2;
    if (!read_subscripts(e, &s))
        return false;
    if (*e->at)
        return refuse_equation(e, "goes on behind the result");
    for (int i = 0; i < s.n; i++) {
        bool again = seen >> s.letters[i] & 1;
        seen |= UINT64_C(1) << s.letters[i];
        if (e->times[s.letters[i]] && !again)
            continue;
        call_refuse_function("einsum", STATUS_INVALID_ARGUMENT, "the result of \"%.80s\" has the letter %c %s", e->text,
                             letter_text(s.letters[i]), again ? "twice" : "which no operand has");
        return false;
    }
    return take_result(e, c, &s);
}

/* Without an arrow: the axes of "...", and the letters that occur once. */
static bool guess_result(const struct equation *e, struct contraction *c) {
    struct subscripts s = {.dots = 0};
    for (int i = 0; i < LETTERS; i++) {
        if (e->times[i] != 1)
            continue;
        if (s.n == TD_RANK_MAX)
            return refuse_equation(e, "has more letters that occur once than a tensor has axes");
        s.letters[s.n++] = (uint8_t)i;
    }
    return take_result(e, c, &s);
}

static bool read_equation(struct equation *e, struct contraction *c, int count, td_tensor *const *operands) {
    for (int i = 0; i < count; i++) {
        if (!add_operand(e, c, operands[i]))
            return false;
        if (*e->at == ',' && i + 1 < count)
            e->at++;
        else if (*e->at == ',' || i + 1 < count)
            return refuse_equation(e, *e->at == ',' ? "is for more operands" : "is for fewer operands");
    }
    return *e->at ? read_result(e, c) : guess_result(e, c);
}

td_tensor *td_einsum(const char *equation, int count, td_tensor *const *operands) {
    struct contraction c;
    struct equation e = {.text = equation, .at = equation};
    if (!equation || !operands || count < 1 || count > TD_EINSUM_MAX)
        return call_refuse_function("einsum", STATUS_INVALID_ARGUMENT, "%s%s, %d operands; 1 to %d are possible",
                                    equation ? "an equation" : "no equation", operands ? "" : ", operands at NULL",
                                    count, TD_EINSUM_MAX);
    for (int i = 0; i < count; i++)
        if (!operands[i])
            return td_reshape(NULL, 0, NULL); /* the error that made it NULL stays */
    if (!contract_init(&c, "einsum", count, operands))
        return NULL;
    return read_equation(&e, &c, count, operands) ? contract_run(&c) : contract_abandon(&c);
}
