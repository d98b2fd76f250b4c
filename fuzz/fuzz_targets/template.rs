//! Templates of blueprints: parsing and rendering terminate, with text or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_blueprint::template::Template;
use serde_json::json;

fuzz_target!(|source: &[u8]| {
    let Ok(source) = std::str::from_utf8(source) else { return };
    if let Ok(template) = Template::parse("fuzz", source) {
        let object = json!({ "Name": "n", "List": [1, "two", null], "Map": { "key": "value" }, "Number": 7 });
        let _ = template.render(&object);
    }
});
