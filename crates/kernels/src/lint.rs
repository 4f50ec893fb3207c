//! What the dialect forbids, found in its text.
//!
//! Files of CUDA alone are no part of the dialect and are not looked at.
//!
//! A compiler of the host accepts much that a device or the exactness of a sum does not: calls of
//! platform mathematics, wider types, atomics, names that are keywords of another compiler. No
//! compiler of ours knows address spaces, so a pointer without one is looked for here too.

/// Words that may not occur in a kernel file, each with its reason.
const WORDS: &[(&str, &str)] = &[
    ("double", "no device has it everywhere"),
    ("half", "a type of Metal"),
    ("kernel", "a keyword of Metal"),
    ("device", "a keyword of Metal; write GLOBAL"),
    ("threadgroup", "a keyword of Metal; write SHARED"),
    ("constant", "a keyword of Metal"),
    ("__global__", "write KERNEL"),
    ("__device__", "write DEVICE"),
    ("__shared__", "write SHARED"),
    ("__syncthreads", "write BARRIER"),
    ("threadIdx", "write LANE"),
    ("blockIdx", "write GROUP_X or GROUP_Y"),
    ("expf", "platform mathematics; write exp_of"),
    ("exp", "platform mathematics; write exp_of"),
    ("logf", "platform mathematics; write ln_of"),
    ("log", "platform mathematics; write ln_of"),
    ("rsqrt", "platform mathematics; divide by SQRT"),
    ("rsqrtf", "platform mathematics; divide by SQRT"),
    ("sqrt", "write SQRT"),
    ("sqrtf", "write SQRT"),
    ("fma", "write FMA"),
    ("fmaf", "write FMA"),
    ("pow", "platform mathematics"),
    ("powf", "platform mathematics"),
    ("tanh", "platform mathematics"),
    ("fmax", "treats a NaN as each device likes; write max_of"),
    ("fmin", "treats a NaN as each device likes; write min_of"),
    ("fmaxf", "treats a NaN as each device likes; write max_of"),
    ("fminf", "treats a NaN as each device likes; write min_of"),
    ("atomicAdd", "an order of its own"),
    ("atomic", "an order of its own"),
    ("goto", "not in Metal"),
    ("new", "not on a device"),
    ("virtual", "not on a device"),
    ("std", "no library is there"),
];

/// Words that only a kernel's own body may use: a helper takes the lane as an argument.
const BODY_WORDS: &[&str] = &["LANE", "GROUP_X", "GROUP_Y", "SHARED", "LIVE"];

/// What is wrong with a kernel file: `line: what`, one entry each.
pub fn lint(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut in_kernel, mut in_macro) = (false, false);
    for (number, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        let mut say = |what: String| found.push(format!("{}: {what}", number + 1));
        in_macro |= code.starts_with("#define") && code.contains("KERNEL(");
        in_kernel |= in_macro || starts_kernel(code);
        for word in words(code) {
            if let Some((_, reason)) = WORDS.iter().find(|(name, _)| *name == word) {
                say(format!("{word}: {reason}"));
            }
            if BODY_WORDS.contains(&word) && !in_kernel {
                say(format!("{word} outside a kernel's body"));
            }
        }
        if let Some(what) = pointer_without_space(code) {
            say(format!("{what}: a pointer without an address space"));
        }
        // A body ends at the first column, a body in a macro with its last line.
        if code.starts_with('}') || in_macro && !code.ends_with('\\') {
            (in_kernel, in_macro) = (false, false);
        }
    }
    found
}

/// How a kernel begins: in full, or by a macro that writes several.
pub(crate) const KERNEL_WORDS: [&str; 11] = [
    "KERNEL(",
    "KERNEL_REHEARSED(",
    "KERNEL_AHEAD(",
    "DENSE_KERNEL(",
    "EXPERT_KERNEL(",
    "UNPACK_KERNEL(",
    "CUDA_KERNEL(",
    "CUDA_KERNEL_AHEAD(",
    "CUDA_KERNEL_BY_ITSELF(",
    "CUDA_FULL_KERNEL(",
    "CUDA_HALF_KERNEL(",
];

fn starts_kernel(code: &str) -> bool {
    KERNEL_WORDS.iter().any(|word| code.trim_start().starts_with(word))
}

/// The identifiers of a line.
fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// A declared pointer whose type says no GLOBAL, THREAD or SHARED_REF.
fn pointer_without_space(code: &str) -> Option<&str> {
    const TYPES: [&str; 8] = ["float*", "u8*", "u16*", "u32*", "u64*", "i32*", "i64*", "Bytes16*"];
    code.split([',', '(', ';', '=']).map(str::trim).find(|part| {
        TYPES.iter().any(|kind| part.contains(kind))
            && !["GLOBAL", "THREAD", "#define"].iter().any(|space| part.contains(space))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source;

    #[test]
    fn kernel_files_keep_the_dialect() {
        for (name, text) in source::FILES {
            if !name.starts_with("prelude") {
                assert_eq!(lint(text), Vec::<String>::new(), "{name}");
            }
        }
    }

    #[test]
    fn each_rule_finds_its_breach() {
        let breaches = [
            ("DEVICE float f(float x) {\n    return expf(x);\n}", "expf"),
            ("DEVICE float f(float* x) {\n    return x[0];\n}", "float* x"),
            ("DEVICE u32 f() {\n    return LANE;\n}", "LANE outside"),
            ("    double x = 0;", "double"),
            ("    float y = fma(a, b, c);", "write FMA"),
            (
                "KERNEL(a, B) {\n    u32 x = LANE;\n}\nDEVICE u32 f() { return GROUP_X; }",
                "GROUP_X outside",
            ),
        ];
        for (text, wanted) in breaches {
            let found = lint(text);
            assert!(found.iter().any(|line| line.contains(wanted)), "{text}: {found:?}");
        }
        let kept = [
            "KERNEL(a, B) {\n    const u32 x = LANE;  // exp of x\n}",
            "KERNEL_REHEARSED(a, B) {\n    if (x) {\n        y();\n    }\n    if (LIVE) z();\n}",
            "#define A_KERNEL(a) \\\n    KERNEL(a, B) { \\\n        f(LANE); \\\n    }",
        ];
        for text in kept {
            assert_eq!(lint(text), Vec::<String>::new(), "{text}");
        }
        let behind = "#define A_KERNEL(a) \\\n    KERNEL(a, B) { f(LANE); }\nDEVICE u32 f() { return LANE; }";
        assert_eq!(lint(behind), ["3: LANE outside a kernel's body"]);
    }
}
