//! The models that an endpoint says it serves, and how busy it says its GPUs are.
#![deny(clippy::indexing_slicing)]

use alloc::string::String;
use alloc::vec::Vec;

use serde_json::Value;

use crate::exposition::{Line, Lines};
use crate::reading::PageError;
use crate::sort::sort;

/// A name that an endpoint answers to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ServedModel {
    /// The name in requests: a model's, or an adapter's.
    pub id: String,
    /// The model that an adapter belongs to.
    pub parent: Option<String>,
}

/// Reads the answer to `GET /v1/models`: the models by name, each once; `None` when it is no list.
///
/// Entries without a name are left out, and those past 256.
pub fn read_models(body: &[u8]) -> Option<Vec<ServedModel>> {
    let document: Value = serde_json::from_slice(body).ok()?;
    let list = document.get("data")?.as_array()?;
    let name = |entry: &Value, key: &str| {
        let name = entry.get(key)?.as_str()?;
        (1..=NAME_BYTES_MAX)
            .contains(&name.len())
            .then(|| name.into())
    };
    let served = list.iter().filter_map(|entry| {
        Some(ServedModel {
            id: name(entry, "id")?,
            parent: name(entry, "parent"),
        })
    });
    let mut models: Vec<ServedModel> = served.take(MODELS_MAX).collect();
    sort(&mut models);
    models.dedup_by(|next, kept| next.id == kept.id);
    Some(models)
}

/// The busiest GPU's utilization on a page of DCGM Exporter, `0..=1`.
///
/// On a page that tells pods apart, only the GPUs of `pod` count and those of none. What is no
/// number tells nothing.
pub fn read_gpu_usage(page: &[u8], pod: Option<&str>) -> Result<f64, PageError> {
    let mut busiest: Option<f64> = None;
    for line in Lines::new(page, true) {
        let unread = match Line::new(line) {
            Line::Sample(unread) if unread.name == GPU_UTILIZATION => unread,
            Line::End => break,
            _ => continue,
        };
        let Some(sample) = unread.sample() else {
            continue;
        };
        let of = sample.labels.value(b"pod").filter(|of| !of.is_empty());
        let is_ours = of.zip(pod).is_none_or(|(of, pod)| of == pod.as_bytes());
        let percent = sample.value.filter(|it| it.is_finite() && *it >= 0.0);
        if let Some(percent) = percent.filter(|_| is_ours) {
            busiest = Some(busiest.map_or(percent, |busiest| busiest.max(percent)));
        }
    }
    let busiest = busiest.ok_or(PageError::NoKnownFamily)?;
    Ok((busiest / 100.0).min(1.0))
}

/// How busy each GPU is, in percent.
const GPU_UTILIZATION: &[u8] = b"DCGM_FI_DEV_GPU_UTIL";

/// Models and adapters of one endpoint: more than a server holds at once.
pub(crate) const MODELS_MAX: usize = 256;

/// Bytes of a model's name.
const NAME_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn models(body: &str) -> String {
        let Some(models) = read_models(body.as_bytes()) else {
            return "none".into();
        };
        let words = models.iter().map(|model| match &model.parent {
            Some(parent) => format!("{}<{parent}", model.id),
            None => model.id.clone(),
        });
        words.collect::<Vec<String>>().join(" ")
    }

    #[test]
    fn the_models_of_an_endpoint_are_sorted_and_known_by_their_names() {
        for (body, expected) in [
            (
                r#"{"object":"list","data":[{"id":"b","parent":"a"},{"id":"a","parent":null}]}"#,
                "a b<a",
            ),
            (r#"{"data":[{"id":"a"},{"id":"a"}]}"#, "a"),
            (
                r#"{"data":[{"id":""},{"id":1},{},3,{"id":"a","parent":2}]}"#,
                "a",
            ),
            (r#"{"data":[]}"#, ""),
            (r#"{"data":{}}"#, "none"),
            (r#"[{"id":"a"}]"#, "none"),
            ("<html>", "none"),
            ("", "none"),
        ] {
            assert_eq!(models(body), expected, "{body}");
        }
    }

    #[test]
    fn models_and_their_names_are_bounded() {
        let list = |count: u32| {
            let entries = (0..count).map(|number| format!(r#"{{"id":"m{number}"}}"#));
            let entries = entries.collect::<Vec<String>>().join(",");
            read_models(format!(r#"{{"data":[{entries}]}}"#).as_bytes())
                .unwrap()
                .len()
        };
        assert_eq!((list(256), list(257)), (256, 256));
        let named = |length| {
            models(&format!(
                r#"{{"data":[{{"id":"{}"}}]}}"#,
                "m".repeat(length)
            ))
        };
        assert_eq!((named(256).len(), named(257).len()), (256, 0));
    }

    #[test]
    fn gpu_usage_is_that_of_the_pods_busiest_gpu() {
        let page = "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n\
            DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",pod=\"a\"} 30\n\
            DCGM_FI_DEV_GPU_UTIL{gpu=\"1\",pod=\"a\"} 40\n\
            DCGM_FI_DEV_GPU_UTIL{gpu=\"2\",pod=\"b\"} 90\n\
            DCGM_FI_DEV_MEM_COPY_UTIL{gpu=\"1\",pod=\"a\"} 99\n";
        let none = Err(PageError::NoKnownFamily);
        for (page, pod, expected) in [
            (page, Some("a"), Ok(0.4)),
            (page, Some("b"), Ok(0.9)),
            (page, None, Ok(0.9)),
            (page, Some("c"), none),
            ("DCGM_FI_DEV_GPU_UTIL{pod=\"\"} 7", Some("a"), Ok(0.07)),
            ("DCGM_FI_DEV_GPU_UTIL 0", Some("a"), Ok(0.0)),
            ("DCGM_FI_DEV_GPU_UTIL 120", None, Ok(1.0)),
            (
                "DCGM_FI_DEV_GPU_UTIL NaN\nDCGM_FI_DEV_GPU_UTIL{gpu=\"1\"} 5",
                None,
                Ok(0.05),
            ),
            ("DCGM_FI_DEV_GPU_UTIL -1", None, none),
            ("DCGM_FI_DEV_GPU_UTIL", None, none),
            ("", None, none),
        ] {
            assert_eq!(
                read_gpu_usage(page.as_bytes(), pod),
                expected,
                "{page} {pod:?}"
            );
        }
    }
}
