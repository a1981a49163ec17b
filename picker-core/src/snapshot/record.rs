//! What an endpoint told, as bytes of its record in a snapshot.

use alloc::string::String;
use alloc::vec::Vec;

use super::GpuUsage;
use crate::Timestamp;
use crate::bytes::{Reader, Writer};
use crate::mapping::EngineMapping;
use crate::metrics::{EndpointMetrics, Lora};
use crate::models::{MODELS_MAX, ServedModel};

pub(super) fn encode_metrics(metrics: &EndpointMetrics, writer: &mut Writer<'_>) {
    writer.gauge(metrics.running);
    writer.gauge(metrics.waiting);
    writer.gauge(metrics.kv_usage);
    writer.gauge(metrics.kv_usage_max);
    writer.count(metrics.block_size.map(u64::from));
    writer.count(metrics.num_blocks);
    writer.count(metrics.capacity_tokens);
    writer.count(metrics.offload_tokens);
    writer.count(metrics.prefix_queries);
    writer.count(metrics.prefix_hits);
    writer.flag(metrics.sleeping);
    writer.flag(metrics.prefix_caching);
    writer.gauge(metrics.process_started);
    writer.u8(u8::from(metrics.lora.is_some()));
    if let Some(lora) = &metrics.lora {
        writer.count(lora.max.map(u64::from));
        encode_names(&lora.running, writer);
        encode_names(&lora.waiting, writer);
    }
    let attributes = metrics.attributes.iter().take(ATTRIBUTES_MAX);
    writer.u8(attributes.len() as u8);
    for (name, value) in attributes {
        writer.text(name);
        writer.gauge(Some(*value));
    }
}

pub(super) fn decode_metrics(reader: &mut Reader<'_>) -> Option<EndpointMetrics> {
    Some(EndpointMetrics {
        running: reader.gauge()?,
        waiting: reader.gauge()?,
        kv_usage: reader.gauge()?,
        kv_usage_max: reader.gauge()?,
        block_size: reader.count()?.and_then(|size| u32::try_from(size).ok()),
        num_blocks: reader.count()?,
        capacity_tokens: reader.count()?,
        offload_tokens: reader.count()?,
        prefix_queries: reader.count()?,
        prefix_hits: reader.count()?,
        sleeping: reader.flag()?,
        prefix_caching: reader.flag()?,
        process_started: reader.gauge()?,
        lora: match reader.u8()? {
            0 => None,
            _ => Some(Lora {
                max: reader.count()?.and_then(|max| u32::try_from(max).ok()),
                running: decode_names(reader)?,
                waiting: decode_names(reader)?,
            }),
        },
        attributes: (0..reader.u8()?)
            .map(|_| Some((reader.text()?.into(), reader.gauge()??)))
            .collect::<Option<Vec<_>>>()
            .filter(|attributes| attributes.len() <= ATTRIBUTES_MAX)?,
    })
}

/// Writes that nothing is known as one model more than there can be.
pub(super) fn encode_models(models: Option<&[ServedModel]>, writer: &mut Writer<'_>) {
    let Some(models) = models else {
        return writer.u16(NO_MODELS);
    };
    let kept = models.iter().take(MODELS_MAX);
    writer.u16(kept.len() as u16);
    for model in kept {
        writer.text(&model.id);
        writer.text(model.parent.as_deref().unwrap_or_default());
    }
}

pub(super) fn decode_models(reader: &mut Reader<'_>) -> Option<Option<Vec<ServedModel>>> {
    let count = reader.u16()?;
    if count == NO_MODELS {
        return Some(None);
    }
    let models = (0..count).map(|_| {
        let id = reader.text()?.into();
        let parent = Some(reader.text()?).filter(|parent| !parent.is_empty());
        let parent = parent.map(String::from);
        Some(ServedModel { id, parent })
    });
    let models: Vec<ServedModel> = models.collect::<Option<_>>()?;
    let is_list = models.len() <= MODELS_MAX && models.is_sorted_by(|one, next| one.id < next.id);
    is_list.then_some(Some(models))
}

pub(super) fn decode_gpus(reader: &mut Reader<'_>) -> Option<Option<GpuUsage>> {
    let (usage, read_at) = (reader.gauge()?, reader.count()?);
    Some(usage.zip(read_at).map(|(usage, read_at)| GpuUsage {
        usage,
        read_at: Timestamp(read_at),
    }))
}

fn encode_names(names: &[String], writer: &mut Writer<'_>) {
    let kept = names.iter().take(NAMES_MAX);
    writer.u16(kept.len() as u16);
    kept.for_each(|name| writer.text(name));
}

fn decode_names(reader: &mut Reader<'_>) -> Option<Vec<String>> {
    (0..reader.u16()?)
        .map(|_| reader.text().map(String::from))
        .collect()
}

/// Adapters kept per endpoint and list; engines batch a few dozen at most.
const NAMES_MAX: usize = 1024;

/// Attributes kept per endpoint, all that a mapping may publish.
const ATTRIBUTES_MAX: usize = EngineMapping::ATTRIBUTES_MAX;

/// The number of models that stands for none known.
const NO_MODELS: u16 = u16::MAX;
