//! The messages of TensorBoard's event files, as far as they are written here.
//!
//! Names and numbers of fields are those of `event.proto`, `summary.proto`, `tensor.proto` and `types.proto` of
//! TensorBoard (`tensorboard/compat/proto`).

/// `DT_STRING` of `types.proto`.
const DT_STRING: i32 = 7;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct EventMessage {
    /// Seconds since the start of 1970.
    #[prost(double, tag = "1")]
    pub(super) wall_time: f64,
    #[prost(int64, tag = "2")]
    pub(super) step: i64,
    #[prost(oneof = "What", tags = "3, 5")]
    pub(super) what: Option<What>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum What {
    #[prost(string, tag = "3")]
    FileVersion(String),
    #[prost(message, tag = "5")]
    Summary(SummaryMessage),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SummaryMessage {
    #[prost(message, repeated, tag = "1")]
    pub(super) value: Vec<ValueMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ValueMessage {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(message, optional, tag = "9")]
    metadata: Option<SummaryMetadata>,
    #[prost(oneof = "Content", tags = "2, 8")]
    value: Option<Content>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Content {
    #[prost(float, tag = "2")]
    SimpleValue(f32),
    #[prost(message, tag = "8")]
    Tensor(TensorProto),
}

#[derive(Clone, PartialEq, prost::Message)]
struct SummaryMetadata {
    #[prost(message, optional, tag = "1")]
    plugin_data: Option<PluginData>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PluginData {
    #[prost(string, tag = "1")]
    plugin_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TensorProto {
    #[prost(int32, tag = "1")]
    dtype: i32,
    #[prost(message, optional, tag = "2")]
    tensor_shape: Option<TensorShape>,
    #[prost(bytes = "vec", repeated, tag = "8")]
    string_val: Vec<Vec<u8>>,
}

/// Of a scalar: without dimensions.
#[derive(Clone, PartialEq, prost::Message)]
struct TensorShape {}

impl ValueMessage {
    pub(super) fn scalar(tag: &str, value: f64) -> ValueMessage {
        ValueMessage { tag: tag.to_owned(), metadata: None, value: Some(Content::SimpleValue(value as f32)) }
    }

    /// A text, as the plugin `text` shows it.
    pub(super) fn text(tag: &str, text: &str) -> ValueMessage {
        let plugin_data = Some(PluginData { plugin_name: "text".to_owned() });
        let tensor = TensorProto {
            dtype: DT_STRING,
            tensor_shape: Some(TensorShape {}),
            string_val: vec![text.as_bytes().to_vec()],
        };
        ValueMessage {
            tag: tag.to_owned(),
            metadata: Some(SummaryMetadata { plugin_data }),
            value: Some(Content::Tensor(tensor)),
        }
    }
}
