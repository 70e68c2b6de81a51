"""The two expressions of Spark's Avro module, which PySpark does not bring along, around the parts of it that it does.

``from_avro`` and ``to_avro`` of SQL find them by name: with them Spark plans and evaluates both.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_IMPORTS = """
package org.apache.spark.sql.avro;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnaryExpression;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.types.BinaryType$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
"""
_SOURCE = (
    _IMPORTS
    + """
public class AvroDataToCatalyst extends UnaryExpression implements CodegenFallback, java.io.Serializable {
    private final Expression child;
    private final String schema;
    private final scala.collection.immutable.Map options;
    private transient GenericDatumReader reader;
    private transient AvroDeserializer deserializer;
    private transient AvroOptions given;
    private transient DataType dataType;

    public AvroDataToCatalyst(Expression child, String schema, scala.collection.immutable.Map options) {
        this.child = child; this.schema = schema; this.options = options;
    }
    public TreeNode child() { return child; }
    public String jsonFormatSchema() { return schema; }
    public scala.collection.immutable.Map options() { return options; }

    private AvroOptions given() {
        if (given == null) given = AvroOptions.apply(options);
        return given;
    }
    private Schema written() { return new Schema.Parser().setValidateDefaults(false).parse(schema); }
    private Schema wanted() { return given().schema().isDefined() ? (Schema) given().schema().get() : written(); }
    private boolean permissive() { return given().parseMode().name().equals("PERMISSIVE"); }

    public DataType dataType() {
        if (dataType != null) return dataType;
        DataType found = SchemaConverters.toSqlType(wanted(), given().useStableIdForUnionType(),
            given().stableIdPrefixForUnionType(), given().recursiveFieldMaxDepth()).dataType();
        dataType = permissive() ? found.asNullable() : found;
        return dataType;
    }
    public boolean nullable() { return true; }

    public Object nullSafeEval(Object input) {
        if (reader == null) {
            reader = new GenericDatumReader(written(), wanted());
            deserializer = new AvroDeserializer(wanted(), dataType(), given().datetimeRebaseModeInRead(),
                given().useStableIdForUnionType(), given().stableIdPrefixForUnionType(),
                given().recursiveFieldMaxDepth());
        }
        try {
            Object datum = reader.read(null, DecoderFactory.get().binaryDecoder((byte[]) input, null));
            Object value = deserializer.deserialize(datum).get();
            return value instanceof InternalRow ? ((InternalRow) value).copy() : value;
        } catch (Exception error) {
            if (!permissive()) throw new RuntimeException("[MALFORMED_AVRO_MESSAGE] " + error, error);
            if (!(dataType() instanceof StructType)) return null;
            return new GenericInternalRow(new Object[((StructType) dataType()).length()]);
        }
    }
    public TreeNode withNewChildInternal(TreeNode changed) {
        return new AvroDataToCatalyst((Expression) changed, schema, options);
    }
    public String prettyName() { return "from_avro"; }
    public ExprCode doGenCode(CodegenContext context, ExprCode code) {
        return CodegenFallback.doGenCode$(this, context, code);
    }
    public int productArity() { return 3; }
    public Object productElement(int i) { return i == 0 ? child : i == 1 ? (Object) schema : options; }
    public boolean canEqual(Object other) { return other instanceof AvroDataToCatalyst; }
}

public class CatalystDataToAvro extends UnaryExpression implements CodegenFallback, java.io.Serializable {
    private final Expression child;
    private final scala.Option schema;

    public CatalystDataToAvro(Expression child, scala.Option schema) { this.child = child; this.schema = schema; }
    public TreeNode child() { return child; }
    public scala.Option jsonFormatSchema() { return schema; }

    public DataType dataType() { return BinaryType$.MODULE$; }

    public Object nullSafeEval(Object input) {
        Schema wanted = schema.isDefined()
            ? new Schema.Parser().setValidateDefaults(false).parse((String) schema.get())
            : SchemaConverters.toAvroType(child.dataType(), child.nullable(), "topLevelRecord", "");
        java.io.ByteArrayOutputStream out = new java.io.ByteArrayOutputStream();
        BinaryEncoder encoder = EncoderFactory.get().directBinaryEncoder(out, null);
        try {
            Object datum = new AvroSerializer(child.dataType(), wanted, child.nullable()).serialize(input);
            new GenericDatumWriter(wanted).write(datum, encoder);
            encoder.flush();
        } catch (java.io.IOException error) {
            throw new RuntimeException(error);
        }
        return out.toByteArray();
    }
    public TreeNode withNewChildInternal(TreeNode changed) {
        return new CatalystDataToAvro((Expression) changed, schema);
    }
    public String prettyName() { return "to_avro"; }
    public ExprCode doGenCode(CodegenContext context, ExprCode code) {
        return CodegenFallback.doGenCode$(this, context, code);
    }
    public int productArity() { return 2; }
    public Object productElement(int i) { return i == 0 ? (Object) child : schema; }
    public boolean canEqual(Object other) { return other instanceof CatalystDataToAvro; }
}
"""
)


def add_avro(spark: SparkSession, folder: Path) -> None:
    """Compiles the expressions into a jar and gives it to the session."""
    jar = folder / "avro-stand-in.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setTargetVersion(8)  # static methods of interfaces
        compiler.cook(_SOURCE)
        for name, code in compiler.getBytecodes().items():
            archive.writestr(f"{name.replace('.', '/')}.class", bytes(code))
    spark.sql(f"ADD JAR '{jar}'")
